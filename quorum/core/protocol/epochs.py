"""How far an epoch may be moved at once, so that there is always a next one.

An epoch is durable, never falls, and there is none after `EPOCH_MAX`: a node that stood there could never again take part in
an election, through every restart. So nobody moves a node there. Let `left` be EPOCH_MAX - epoch.

    who moves it                        by at most
    a request, of whoever may send one  1,000,000 (`EPOCHS_AHEAD_MAX`), and half of what is left
    a reply, of whom this node asked    half of what is left: a node that was away is told by replies how far the others are
    a candidate, or a leader at rest    1, and half of what is left
    `quorumctl quorum recover`          as a request

    In epoch 7 a forged request for epoch 9,223,372,036,854,775,807 is INVALID_REQUEST, and one for 1,000,007 is taken in. With
    64 bits nobody lives long enough to go all the way like that: at a hundred requests a second it takes 2,900 years.
    In epoch EPOCH_MAX - 5 a request may move this node by 2, in EPOCH_MAX - 2 by 1. In EPOCH_MAX - 1 nobody moves it: it does
    not run any more, follows whoever leads, and says so (`problem`).

A refusal has changed nothing: no epoch beyond reach is ever written.
"""

from typing import Final

from metadata_log.format.ids import EPOCH_MAX, Epoch

EPOCHS_AHEAD_MAX: Final = 1_000_000
"""So far above this node's epoch may a request's be: three days of elections that all fail. A node that was away for longer
is told the epoch by the replies to its own fetches, of those that it asked."""


def reach(epoch: Epoch) -> int:
    """By how much a request may raise `epoch`, in epochs; 0 where there is no next one. The file's head has the table."""
    return min(EPOCHS_AHEAD_MAX, reach_of_reply(epoch))


def reach_of_reply(epoch: Epoch) -> int:
    """The same of a reply to a request of this node's own."""
    return (EPOCH_MAX - epoch) // 2


def problem(epoch: Epoch) -> str:
    """That the end of all epochs is near, in one sentence; empty: it is not."""
    left = EPOCH_MAX - epoch
    if left > 2 * EPOCHS_AHEAD_MAX:
        return ""
    state = (
        f"of the epochs only {left - 1:,} are left"
        if reach(epoch)
        else "no epoch is left: this node does not run for leader"
    )
    return (
        f"{state} (it is in {epoch}): no cluster gets there by itself, so somebody forges messages. Nothing is lost; close the "
        "controllers' port to strangers (TLS), and move to a new cluster"
    )
