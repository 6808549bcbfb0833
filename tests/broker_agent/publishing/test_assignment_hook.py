"""The assignment hook: it gets everything since its last success, and is asked again until it succeeds."""

import json
from pathlib import Path

import pytest

from broker_agent.publishing.assignment_hook import AssignmentHook, HookFailed
from broker_agent.publishing.assignments import ResumePoint
from broker_agent.publishing.publishers import ImageUpdate
from metadata_log.format.records import MetadataRecord, PartitionChange, RemoveTopic, Topic
from metadata_log.image.changes import Changes
from tests.broker_agent.publishing.test_assignment_feed import ORDERS, Broker, orders

pytestmark = pytest.mark.slow


class Hooked(Broker):
    """Broker 1 with a hook: a shell script that appends its input to a file, and fails while the file `fail` is there."""

    def __init__(
        self, path: Path, script: str = "cat >> seen\nif test -e fail; then echo no disk >&2; exit 3; fi\n"
    ) -> None:
        super().__init__()
        self.path = path
        program = path / "hook"
        program.write_text(f"#!/bin/sh\ncd {path}\n{script}")
        program.chmod(0o755)
        self.hook = AssignmentHook([str(program)], 5_000, self.feed)
        self.taken = self.image

    async def write(self, *records: MetadataRecord) -> None:
        """As a publisher would: an update that was not taken comes again, merged with the next one."""
        before = self.image
        self.feed, kept = _Deaf(), self.feed  # type: ignore[assignment]
        await super().write(*records)
        self.feed = kept
        assert before.offset <= self.image.offset
        await self.hook.take(ImageUpdate(self.taken, self.image, Changes.between(self.taken, self.image), 1))
        self.taken = self.image

    def seen(self) -> list[str]:
        """The lines since the last look."""
        file = self.path / "seen"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        file.unlink(missing_ok=True)
        return [f"{each['assignment']} {each.get('partition', each.get('replicas'))}" for each in lines]


class _Deaf:
    """A feed that takes nothing: the hook's own subscriber gives the update to the real one."""

    async def take(self, update: ImageUpdate) -> None:
        """Nothing."""


async def test_a_hook_gets_all_since_its_last_success(tmp_path: Path) -> None:
    """The whole set first, then changes; after a failure everything since the last success again."""
    me = Hooked(tmp_path)
    await me.write(Topic("orders", ORDERS), *orders(2))
    assert me.seen() == ["whole_set 2", "lead 0", "lead 1"]
    assert me.hook.acknowledged == ResumePoint(1, 3)
    (tmp_path / "fail").touch()
    with pytest.raises(HookFailed, match="hook ended with 3: no disk"):
        await me.write(PartitionChange(ORDERS, 0, leader=2))
    assert me.seen() == ["follow 0"]
    (tmp_path / "fail").unlink()
    await me.write(PartitionChange(ORDERS, 1, leader=2))
    assert me.seen() == ["follow 0", "follow 1"]
    assert me.hook.acknowledged == ResumePoint(1, 5)
    await me.write(Topic("others", b"x" * 16))
    assert me.seen() == []
    await me.write(RemoveTopic("orders", ORDERS))
    assert me.seen() == ["delete 0", "delete 1"]


async def test_a_hook_that_cannot_run_or_does_not_end_is_a_failure(tmp_path: Path) -> None:
    me = Hooked(tmp_path, "exec sleep 60\n")
    me.hook._timeout_ms = 100
    with pytest.raises(HookFailed, match="was killed: it did not end within 100 ms"):
        await me.write(Topic("orders", ORDERS), *orders(1))
    (tmp_path / "hook").unlink()
    with pytest.raises(HookFailed, match="was not started: No such file or directory"):
        await me.write(PartitionChange(ORDERS, 0, leader=2))
    assert me.hook.acknowledged is None


async def test_a_hook_that_reads_nothing_is_judged_by_its_exit_code(tmp_path: Path) -> None:
    """Neither a broken pipe nor much output stops the broker."""
    me = Hooked(tmp_path, "head -c 100000 /dev/zero | tr '\\0' x >&2\nexit 0\n")
    await me.write(Topic("orders", ORDERS), *orders(2_000))
    assert me.hook.acknowledged == ResumePoint(1, 2_001)
