"""A sharded key-value store's control plane: each shard is led by one live server, and a deposed server cannot write.

Start some servers, kill one, start it again: `python examples/sharded_store.py NAME 127.0.0.1:9001` (controllers or brokers,
separated by commas). The elected server gives each shard to a server. Each server takes its shards under a token; the token goes
with every write to the data, so that the storage refuses a server that leads the shard no more (`docs/embed.md`).
"""

import asyncio
import itertools
import sys

import metaquorum
from metaquorum import Condition, Election, EntityClient, Members, Membership, PutEntity, Session, Token

SHARDS = [f"shard-{number}" for number in range(8)]


async def give_out(session: Session, servers: Members) -> None:
    """The elected server gives the shards out, again after each change of the group. `session` is one of a server."""
    election, given = Election(session, "sharded-store"), dict[str, Condition]()
    await election.campaign()
    while True:
        seen, alive = servers.position, {name: servers.condition(name) for name in servers.names}
        if alive and alive != given:  # a server that was restarted has another condition
            owners = dict(zip(SHARDS, itertools.cycle(alive), strict=False))
            puts = [PutEntity("shard", shard, owner.encode()) for shard, owner in owners.items()]
            if (await election.transact([*alive.values()], puts)).succeeded:  # else a server has left meanwhile
                given = alive
        await servers.changed(since=seen)


async def lead(client: EntityClient, me: Membership) -> None:
    """Leads each shard that this server was given since it joined, under the token of the write that gave it."""
    led = dict[str, Token]()
    async with client.live("shard") as shards:
        while True:
            mine = [each for each in shards.values() if each.value == me.name.encode() and each.token > me.token]
            now = {shard.name: shard.token for shard in mine}
            for shard in led.keys() - now.keys():
                print(f"{me.name} gives {shard} up", flush=True)
            for shard, token in now.items() - led.items():
                print(f"{me.name} leads {shard} under the token {token}", flush=True)
            led = now
            await shards.changed()


async def main(name: str, bootstrap: str) -> None:
    async with (
        EntityClient(bootstrap.split(",")) as client,
        client.session(name) as session,
        Members(client, "servers") as servers,
    ):
        me = await servers.join(session, name, wait=True)  # a former server of this name is gone after its timeout
        async with asyncio.TaskGroup() as tasks:  # the end of one task ends the other
            tasks.create_task(session.run(give_out(session, servers)))
            tasks.create_task(session.run(lead(client, me)))


if __name__ == "__main__":
    metaquorum.run(main(*sys.argv[1:]) if len(sys.argv) == 3 else sys.exit(__doc__))
