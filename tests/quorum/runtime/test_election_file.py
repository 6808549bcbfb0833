"""The vote on disk: what `save` and `load` say is durable, is."""

from random import Random

import pytest

from metadata_log.ids import ReplicaKey
from quorum.core.effects import ElectionState
from quorum.runtime import election_file
from tests.sim.disk import MemoryDirectory, PowerCut

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
