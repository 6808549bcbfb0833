"""Limits for raising an epoch at once, so that a next epoch always exists.

An epoch is durable and never falls, and no epoch follows `EPOCH_MAX`: a node at EPOCH_MAX could never take part in an
election again, even after restarts. So no message may move a node there. Let `left` be EPOCH_MAX - epoch.

    source of the new epoch              raises the epoch by at most
    a request, from any sender           1,000,000 (`EPOCHS_AHEAD_MAX`), and half of `left`
    a reply to this node's own request   half of `left`: replies tell a returning node how far the others are
    a candidate, or a resigned leader    1, and half of `left`
    `quorumctl quorum recover`           as a request

Example:

    1. Voter 1 is in epoch 7. A forged request for epoch 9,223,372,036,854,775,807 is refused: INVALID_REQUEST.
    2. A forged request for epoch 1,000,007 is accepted. At a hundred such requests a second, an attacker needs 2,900 years
       to reach the end.
    3. In epoch EPOCH_MAX - 5, a request may raise the epoch by 2; in EPOCH_MAX - 2, by 1.
    4. In epoch EPOCH_MAX - 1, no message raises the epoch. Voter 1 no longer campaigns, follows any leader, and reports the
       problem (`problem`).

A refused request has no effect: no epoch beyond reach is ever written to disk.
"""

from typing import Final

from metadata_log.format.ids import EPOCH_MAX, Epoch

EPOCHS_AHEAD_MAX: Final = 1_000_000
"""Maximum number of epochs a request may be ahead: three days of elections without a winner. A node away for longer
learns the epoch from replies to its own fetches."""


def reach(epoch: Epoch) -> int:
    """Maximum number of epochs by which a request may raise `epoch`; 0: no next epoch. The file's head has the table."""
    return min(EPOCHS_AHEAD_MAX, reach_of_reply(epoch))


def reach_of_reply(epoch: Epoch) -> int:
    """Maximum number of epochs by which a reply to this node's own request may raise `epoch`."""
    return (EPOCH_MAX - epoch) // 2


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
