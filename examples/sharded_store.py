"""A sharded key-value store's control plane: each shard is led by one live server, and a deposed server cannot write.

Start some servers, kill one, start it again: `python examples/sharded_store.py NAME 127.0.0.1:9001` (controllers or brokers,
separated by commas). The elected server gives each shard to a server. Each server takes its shards under a token; the token goes
with every write to the data, so that the storage refuses a server that leads the shard no more (`docs/embed.md`).
"""

import asyncio
import sys

from metaquorum import Election, EntityClient, Members, PutEntity, Session, Token, exists

SHARDS = [f"shard-{number}" for number in range(8)]


async def give_out(session: Session, servers: Members) -> None:
    """The elected server gives the shards out, again after each change of the group. `session` is one of a server."""
    election, given = Election(session, "sharded-store"), list[str]()
    await election.campaign()
    while True:
        names = servers.names
        if names and names != given:
            owners = {shard: names[number % len(names)] for number, shard in enumerate(SHARDS)}
            alive = [exists("member", f"servers/{name}") for name in set(owners.values())]
            puts = [PutEntity("shard", shard, owner.encode()) for shard, owner in owners.items()]
            if (await election.transact(alive, puts)).succeeded:  # a server that has left meanwhile gets nothing
                given = names
        if not servers.names or servers.names == given:
            await servers.changed()


async def lead(name: str, client: EntityClient) -> None:
    """Leads each shard that this server was given, under the token of the write that gave it."""
    led = dict[str, Token]()
    async with client.live("shard") as shards:
        while True:
            now = {shard.name: shard.token for shard in shards.values() if shard.value == name.encode()}
            for shard in led.keys() - now.keys():
                print(f"{name} gives {shard} up", flush=True)
            for shard in now.keys() - led.keys():
                print(f"{name} leads {shard} under the token {now[shard]}", flush=True)
            led = now
            await shards.changed()


async def main(name: str, bootstrap: str) -> None:
    async with (
        EntityClient(bootstrap.split(",")) as client,
        client.session(name) as session,
        Members(client, "servers") as servers,
    ):
        await servers.join(session, name)
        await session.run(asyncio.gather(give_out(session, servers), lead(name, client)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
