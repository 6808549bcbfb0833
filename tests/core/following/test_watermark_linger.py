"""A follower learns a new high watermark with the next batch, or soon: an answer at once would double the messages."""

from quorum.core.protocol.effects import Effect, Reply, ReplyWithBatches
from quorum.core.protocol.messages import FetchResponse
from tests.core.solo import Solo

LINGER_MS = 5


def _leader() -> Solo:
    """A leader with its first record committed; node 2 waits for more, and knows all commits."""
    solo = Solo(watermark_linger_ms=LINGER_MS)
    solo.elect()
    solo.fetch(2)
    solo.wait(LINGER_MS)
    solo.fetch(2, high_watermark=solo.core.high_watermark or 0)
    return solo


def _told(effects: list[Effect]) -> list[int | None]:
    """The high watermarks carried by the answers."""
    answers = [effect.response for effect in effects if isinstance(effect, Reply | ReplyWithBatches)]
    return [answer.high_watermark for answer in answers if isinstance(answer, FetchResponse)]


def test_the_acknowledgement_that_commits_is_not_answered_at_once() -> None:
    """The fetch which moves the high watermark is parked: the next batch may carry the news along."""
    solo = _leader()
    before = solo.core.high_watermark
    solo.append()
    committing = solo.fetch(2, high_watermark=before or 0)

    assert solo.core.high_watermark == solo.log.end
    assert _told(committing) == []


def test_the_next_batch_brings_the_watermark_along() -> None:
    """One answer carries the batch and the high watermark, instead of two answers."""
    solo = _leader()
    solo.append()
    solo.fetch(2, high_watermark=2)
    committed = solo.core.high_watermark
    next_batch = solo.append()

    assert _told(next_batch) == [committed]


def test_without_a_next_batch_it_is_told_after_the_linger() -> None:
    """In a quiet cluster, followers apply commits within the linger, not within a long poll."""
    solo = _leader()
    solo.append()
    solo.fetch(2, high_watermark=2)

    assert _told(solo.wait(LINGER_MS - 1)) == []
    assert _told(solo.wait(1)) == [solo.core.high_watermark]
