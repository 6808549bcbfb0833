"""A job scheduler with elected workers: one worker at a time has a job, and another one takes it over if the worker dies.

    python examples/job_workers.py submit 127.0.0.1:9001 report-1 report-2      submits jobs, and waits until they are done
    python examples/job_workers.py work 127.0.0.1:9001 worker-a                 runs a worker; start several, and kill one

A job is the entity `todo/NAME`. A worker elects itself by the ephemeral entity `claim/NAME`, which vanishes with its session.
The result is written only if the claim is still there: a worker that was cut off cannot end a job that another one has by now.
"""

import asyncio
import sys

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
        await session.run(take_jobs(session, worker))


async def take_jobs(session: Session, worker: str) -> None:
    client = session.client
    async with client.live(KIND) as jobs:
        while True:
            names = [name.removeprefix("todo/") for name in jobs if name.startswith("todo/")]
            free = next((name for name in names if f"claim/{name}" not in jobs), None)
            if free is None:
                await jobs.changed()
                continue
            todo, claim = f"todo/{free}", f"claim/{free}"
            claimed = await client.transact(
                [exists(KIND, todo), absent(KIND, claim)], [PutEntity(KIND, claim, worker.encode(), session.owner)]
            )
            if claimed.succeeded:  # else another worker was faster
                await asyncio.sleep(1)  # the work
                done = PutEntity(KIND, f"done/{free}", worker.encode())
                ending = (DeleteEntity(KIND, todo), DeleteEntity(KIND, claim), done)
                ended = await client.transact([version_is(KIND, claim, claimed.token())], ending)
                print(f"{worker}: {free} {'is done' if ended.succeeded else 'has another worker by now'}", flush=True)


async def main(command: str, bootstrap: str, *arguments: str) -> None:
    async with EntityClient(bootstrap.split(",")) as client:
        await (work(client, *arguments) if command == "work" else submit(client, *arguments))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
