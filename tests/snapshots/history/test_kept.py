"""Kept images are bounded by number and by size, and an image that was not used for long goes first."""

from dataclasses import replace

from metadata_log.image.metadata_image import EMPTY_IMAGE, Provenance
from snapshots.history.kept import KeptImages, PastConfig
from snapshots.history.wanted import Shown, Wanted


def shown(end: int, records: int = 10, *, next_ms: int | None = None, seen: int = 100, settled: bool = True) -> Shown:
    image = replace(EMPTY_IMAGE, provenance=Provenance(end, 1, end), record_count=records)
    next_end = None if next_ms is None else end + 3
    return Shown(image, end, end, b"", next_end, next_ms, seen, settled)


def ends(kept: KeptImages) -> list[int]:
    return [each.end for each in kept.all()]


def test_the_image_that_was_not_used_for_long_goes_first() -> None:
    kept = KeptImages(PastConfig(images_max=2))
    kept.keep(shown(1))
    kept.keep(shown(2))
    assert kept.find(Wanted(offset=1), 100) is not None
    kept.keep(shown(3))
    assert ends(kept) == [1, 3]


def test_the_records_of_all_images_together_are_bounded() -> None:
    kept = KeptImages(PastConfig(images_max=9, records_max=25))
    gone = [[image.offset for image in kept.keep(shown(end))] for end in (1, 2, 3)]
    assert (ends(kept), gone) == ([2, 3], [[], [], [1]])


def test_the_last_used_image_is_kept_however_large_it_is() -> None:
    """A list of a large cluster has many pages, and each page reads the same image."""
    kept = KeptImages(PastConfig(images_max=9, records_max=25))
    kept.keep(shown(1))
    kept.keep(shown(4, records=26))
    assert ends(kept) == [4]
    assert [image.offset for image in kept.forget()] == [4] and ends(kept) == []


def test_no_image_is_kept_if_none_is_allowed() -> None:
    kept = KeptImages(PastConfig(images_max=0))
    kept.keep(shown(1))
    assert ends(kept) == []


def test_a_time_finds_the_image_between_its_batch_and_the_next() -> None:
    kept = KeptImages(PastConfig())
    kept.keep(shown(5, next_ms=9))
    found = [kept.find(Wanted(time_ms=time_ms), 100) is not None for time_ms in (4, 5, 8, 9)]
    assert found == [False, True, True, False]


def test_an_offset_inside_the_next_batch_finds_the_image_before() -> None:
    kept = KeptImages(PastConfig())
    kept.keep(shown(5, next_ms=9))
    assert [kept.find(Wanted(offset=offset), 100) is not None for offset in (4, 5, 7, 8)] == [False, True, True, False]


def test_the_newest_image_answers_a_later_time_only_while_nothing_is_committed() -> None:
    kept = KeptImages(PastConfig())
    kept.keep(shown(5, seen=5, settled=False))
    assert kept.find(Wanted(time_ms=99), 5) is not None
    assert kept.find(Wanted(time_ms=99), 6) is None


def test_an_image_that_a_later_skip_may_change_is_not_used_without_a_search() -> None:
    kept = KeptImages(PastConfig())
    kept.keep(shown(5, seen=50, settled=False))
    assert kept.find(Wanted(offset=5), 50) is not None
    assert kept.find(Wanted(offset=5), 51) is None


def test_the_newest_image_does_not_answer_an_offset_above_the_log() -> None:
    """Such an offset is refused, and the refusal must not depend on what was read before."""
    kept = KeptImages(PastConfig())
    kept.keep(shown(5, seen=5, settled=False))
    assert kept.find(Wanted(offset=6), 5) is None
    assert kept.find(Wanted(offset=5), 5) is not None
