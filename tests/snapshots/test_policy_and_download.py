"""When a snapshot is due, which go, and how one arrives over links that break."""

import random

import pytest

from metadata_log.ids import OffsetAndEpoch
from snapshots.download import RESTARTS_MAX, Download, DownloadFailed
from snapshots.policy import MarkPolicy, RetentionPolicy, SnapshotSize

END = OffsetAndEpoch(100, 2)


@pytest.mark.parametrize(
    ("bytes_since", "ms_since", "is_due"),
    [(0, 10**9, False), (1, 59, False), (1, 60, True), (99, 0, False), (100, 0, True), (0, 0, False)],
)
def test_a_mark_is_due_by_bytes_or_by_time_and_never_while_idle(bytes_since: int, ms_since: int, is_due: bool) -> None:
    assert (MarkPolicy(bytes_between=100, interval_ms=60).due(bytes_since, ms_since) is not None) is is_due


def test_time_alone_can_be_switched_off() -> None:
    assert MarkPolicy(bytes_between=100, interval_ms=0).due(99, 10**12) is None


def sizes(*rows: tuple[int, int, int]) -> list[SnapshotSize]:
    return [SnapshotSize(OffsetAndEpoch(offset, 1), size, ms) for offset, size, ms in rows]


def test_a_log_a_little_over_the_limit_keeps_nearly_all_of_its_history() -> None:
    """Each snapshot that goes takes its share of the log along; only as many go as are needed."""
    snapshots = sizes((100, 5, 0), (200, 5, 1), (300, 5, 2), (400, 5, 3), (500, 5, 4))
    assert RetentionPolicy(max_bytes=400).expired(snapshots, log_bytes=400) == (OffsetAndEpoch(100, 1),)


def test_age_is_the_logs_own() -> None:
    snapshots = sizes((1, 1, 0), (2, 1, 500), (3, 1, 1_000), (4, 1, 1_001))
    assert RetentionPolicy(max_age_ms=600).expired(snapshots, 0) == (OffsetAndEpoch(1, 1),)
    assert RetentionPolicy(max_age_ms=0, max_bytes=0).expired(snapshots[:1], 10**9) == ()
    assert RetentionPolicy().expired([], 10**12) == ()


def test_a_download_ends_with_the_file_whatever_the_link_does() -> None:
    """Answers are lost, doubled and cut short; what was taken is the file."""
    dice = random.Random(5)
    file = dice.randbytes(10_000)
    download, kept = Download(END, chunk_bytes=700), bytearray()
    while not download.is_done:
        request = download.next_request()
        assert request.end == END
        data = file[request.position : request.position + dice.randint(1, request.max_bytes)]
        for _ in range(dice.choice((0, 1, 2))):
            if download.feed(len(file), request.position, data):
                kept[request.position :] = data
    assert kept == file


def test_another_size_starts_it_over_and_not_for_ever() -> None:
    download = Download(END)
    assert download.feed(10, 0, b"12345")
    assert not download.feed(11, 5, b"6")
    assert (download.position, download.size) == (0, None)
    for _ in range(RESTARTS_MAX - 1):
        assert download.feed(10, 0, b"12345")
        download.refused_position()
    with pytest.raises(DownloadFailed):
        download.refused_position()


@pytest.mark.parametrize(
    ("size", "position", "data"), [(0, 0, b""), (-1, 0, b""), (1 << 60, 0, b"x"), (3, 0, b"1234"), (3, 0, b"")]
)
def test_nonsense_is_refused(size: int, position: int, data: bytes) -> None:
    with pytest.raises(DownloadFailed):
        Download(END).feed(size, position, data)
