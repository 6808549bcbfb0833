"""A job scheduler with elected workers: one worker at a time has a job, and another one takes it over if the worker dies.

    python examples/job_workers.py submit 127.0.0.1:9001 report-1 report-2      submits jobs, and waits until they are done
    python examples/job_workers.py work 127.0.0.1:9001 worker-a                 runs a worker; start several, and kill one

A job is the entity `todo/NAME`. A worker elects itself by the ephemeral entity `claim/NAME`, which vanishes with its session.
The result is written only if the claim is still there: a worker that was cut off cannot end a job that another one has by now.
"""

import asyncio
import sys

import metaquorum
from metaquorum import DeleteEntity, EntityClient, PutEntity, Session, absent, exists, version_is

KIND = "job"


async def submit(client: EntityClient, *names: str) -> None:
    for name in names:
        await client.transact([absent(KIND, f"done/{name}")], [PutEntity(KIND, f"todo/{name}", b"")])
    async with client.live(KIND, "done/") as done:
        for name in names:
            while f"done/{name}" not in done:
                await done.changed()
            print(f"{name}: done by {done[f'done/{name}'].value.decode()}", flush=True)


async def work(client: EntityClient, worker: str) -> None:
    async with client.session(worker) as session:
        await session.run(take_jobs(client, session, worker))


async def take_jobs(client: EntityClient, session: Session, worker: str) -> None:
    me = worker.encode()
    async with client.live(KIND) as jobs:
        while True:
            seen, names = jobs.position, [name.removeprefix("todo/") for name in jobs if name.startswith("todo/")]
            free = next((name for name in names if f"claim/{name}" not in jobs), None)
            todo, claim = f"todo/{free}", f"claim/{free}"
            conditions, put = [exists(KIND, todo), absent(KIND, claim)], PutEntity(KIND, claim, me, session.owner)
            claimed = await client.transact(conditions, [put]) if free is not None else None
            if claimed is None or not claimed.succeeded:  # there is no job, or another worker was faster
                await jobs.changed(since=seen)
                continue
            await asyncio.sleep(1)  # the work
            ending = (DeleteEntity(KIND, todo), DeleteEntity(KIND, claim), PutEntity(KIND, f"done/{free}", me))
            ended = await client.transact([version_is(KIND, claim, claimed.token())], ending)
            print(f"{worker}: {free} {'is done' if ended.succeeded else 'has another worker by now'}", flush=True)


async def main(command: str, bootstrap: str, *arguments: str) -> None:
    async with EntityClient(bootstrap.split(",")) as client:
        await (work(client, *arguments) if command == "work" else submit(client, *arguments))


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in ("work", "submit"):
        sys.exit(__doc__)
    metaquorum.run(main(*sys.argv[1:]))
