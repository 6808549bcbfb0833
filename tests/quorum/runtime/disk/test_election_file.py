"""The vote on disk: what `save` and `load` say is durable, is."""

import contextlib
import json
import zlib
from random import Random
from typing import Any

import pytest

from metadata_log.format.ids import EPOCH_MAX, ReplicaKey
from quorum.core.protocol.effects import ElectionState
from quorum.runtime.disk import election_file
from tests.sim.world.disk import MemoryDirectory, PowerCut

OLD = ElectionState(epoch=3, voted_for=None, leader_id=2)
NEW = ElectionState(epoch=4, voted_for=ReplicaKey(1, bytes(range(16))), leader_id=None)


def test_a_vote_that_was_read_is_not_forgotten_by_a_power_cut() -> None:
    """
    1. The process is killed while it saves its vote, after any number of steps.
    2. The next one reads what is there, and may speak of it from now on.
    3. The power goes. What is found must be what 2 has read: else the node votes twice in one epoch.
    """
    read = []
    for steps in range(1, 7):
        for seed in range(10):
            directory = MemoryDirectory()
            election_file.save(directory, OLD)
            directory.cut_power_after(steps)
            with pytest.raises(PowerCut):
                election_file.save(directory, NEW)
            survivor = directory.kill()
            found = election_file.load(survivor)

            assert election_file.load(survivor.crash(Random(seed))) == found
            read.append(found)
    assert OLD in read and NEW in read


def test_every_flipped_bit_of_a_vote_is_noticed() -> None:
    """A digit is as good JSON as the one before it was: without the checksum another epoch, or another vote, would be read."""
    directory = MemoryDirectory()
    election_file.save(directory, NEW)
    data = directory.read(election_file.FILE_NAME, 4_096)
    for place in range(len(data)):
        for bit in range(8):
            rotten = bytearray(data)
            rotten[place] ^= 1 << bit
            directory.write_atomic(election_file.FILE_NAME, bytes(rotten))
            with pytest.raises(election_file.ForgottenVote):
                election_file.load(directory)


def test_the_last_epoch_of_all_reads_back() -> None:
    """An epoch of 2^31, which a forged vote could bring about, was written once and never read again."""
    directory = MemoryDirectory()
    for epoch in (1 << 31, EPOCH_MAX):
        election_file.save(directory, NEW._replace(epoch=epoch))
        assert election_file.load(directory) == NEW._replace(epoch=epoch)


@pytest.mark.parametrize(
    "odd", ["Infinity", "-1", "9223372036854775808", "1.5", "x" * 5_000, "true", '"1"', "[" * 1_500 + "]" * 1_500]
)
@pytest.mark.parametrize("name", ["epoch", "leader_id"])
def test_a_state_that_nobody_can_have_written_is_forgotten(name: str, odd: str) -> None:
    """Also where its checksum fits: no number is guessed, and nothing but ForgottenVote comes out. (Found by the fuzzer.)"""
    directory = MemoryDirectory()
    election_file.save(directory, NEW)
    body: dict[str, Any] = json.loads(directory.read(election_file.FILE_NAME, 4_096))["state"]
    with contextlib.suppress(RecursionError, ValueError):
        body[name] = json.loads(odd)
    crc = zlib.crc32(json.dumps(body, sort_keys=True).encode())
    text = json.dumps({"crc32": crc, "state": body | {name: "ODD"}}).replace('"ODD"', odd)
    directory.write_atomic(election_file.FILE_NAME, text.encode())
    with pytest.raises(election_file.ForgottenVote):
        election_file.load(directory)
