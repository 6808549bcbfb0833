"""Limits for raising an epoch at once, so that a next epoch always exists.

An epoch is durable and never falls, and no epoch follows `EPOCH_MAX`: a node at EPOCH_MAX could never take part in an
election again, even after restarts. So no message may move a node there. Let `left` be EPOCH_MAX - epoch.

    source of the new epoch              raises the epoch by at most
    a request, from any sender           1,000,000 (`EPOCHS_AHEAD_MAX`), and half of `left`
    a reply to this node's own request   1,000,000,000 (`EPOCHS_AHEAD_OF_REPLY_MAX`), and half of `left`
    a candidate, or a resigned leader    1, and half of `left`
    `quorumctl quorum recover`           as a request

Example:

    1. Voter 1 is in epoch 7. A forged request for epoch 9,223,372,036,854,775,807 is refused: INVALID_REQUEST.
    2. A forged request for epoch 1,000,007 is accepted. At a hundred such requests a second, an attacker needs 2,900 years
       to reach the end.
    3. Voter 1 returns after such an attack, in epoch 7, and the others are in epoch 2,500,000,010. The first reply of voter 2
       raises the epoch of voter 1 to 1,000,000,007, the second one to 2,000,000,007; the third reply is within reach. A
       stranger at the address of voter 2 gains a billion with each answer too. Voter 1 asks some twenty times a second, so
       the stranger needs 14 years.
    4. In epoch EPOCH_MAX - 5, a request may raise the epoch by 2; in EPOCH_MAX - 2, by 1.
    5. In epoch EPOCH_MAX - 1, no message raises the epoch. Voter 1 no longer campaigns, follows any leader, and reports the
       problem (`problem`).

A refused request has no effect. A reply beyond reach raises the epoch as far as it may, and is otherwise ignored: an epoch
without a vote and without a leader is always safe. If such a reply had no effect at all, two voters of which one was led
far ahead could never meet again.
"""

from typing import Final

from metadata_log.format.ids import EPOCH_MAX, Epoch

EPOCHS_AHEAD_MAX: Final = 1_000_000
"""Maximum number of epochs a request may be ahead: three days of elections without a winner. A node away for longer
learns the epoch from replies to its own requests."""
EPOCHS_AHEAD_OF_REPLY_MAX: Final = 1_000_000_000
"""Maximum number of epochs by which one reply raises the epoch."""


def reach(epoch: Epoch) -> int:
    """Maximum number of epochs by which a request may raise `epoch`; 0: no next epoch. The file's head has the table."""
    return min(EPOCHS_AHEAD_MAX, (EPOCH_MAX - epoch) // 2)


def reach_of_reply(epoch: Epoch) -> int:
    """Maximum number of epochs by which a reply to this node's own request may raise `epoch`."""
    return min(EPOCHS_AHEAD_OF_REPLY_MAX, (EPOCH_MAX - epoch) // 2)


def problem(epoch: Epoch) -> str:
    """The problem of nearly exhausted epochs, in one sentence; empty: no problem."""
    left = EPOCH_MAX - epoch
    if left > 2 * EPOCHS_AHEAD_MAX:
        return ""
    state = (
        f"the number of epochs left is {left - 1:,}"
        if reach(epoch)
        else "no epoch is left, so this node cannot campaign"
    )
    return (
        f"{state} (this node is in epoch {epoch}): only forged messages can cause this. No data is lost; close the "
        "controllers' port to strangers (TLS), and move to a new cluster"
    )
