"""The results of all shares, added up."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from metadata_log.format.ids import NodeId, Offset
from metadata_log.image.digest import MODULUS, digest_to_bytes
from metadata_log.image.entity_key import EntityKey
from snapshots.offline.shares.dealing import UNREAD
from snapshots.offline.shares.misfits import MISFITS_MAX, Found
from snapshots.offline.shares.share import Share


class Replayed(NamedTuple):
    """The strict replay of a whole log."""

    digests: dict[Offset, tuple[bytes, int]]
    """Digest and number of canonical records at each cut. Records that do not fit are left out."""
    misfits: tuple[Found, ...]
    """By offset, at most `MISFITS_MAX` of each rule."""
    more: dict[str, int]
    """Rule -> how many misfits are not in `misfits`."""
    brokers: dict[NodeId, bool]
    """Registered brokers at the last cut: True if fenced."""
    in_isr: dict[NodeId, str]
    """Brokers in any ISR that has other members or a leader at the last cut, with one partition as an example."""
    record_types: dict[str, int]
    """How many canonical records of each type exist at the last cut."""
    is_whole: bool
    """False if a part of the log could not be read, because the node has removed it meanwhile: nothing here counts."""


def result_of(share: Share, number: int) -> str:
    """Return the result of one share as JSON, for the driver."""
    found: dict[str, Any] = {
        "digests": [[cut, f"{digest % MODULUS:x}", count] for cut, (digest, count) in share.digests.items()],
        "misfits": share.misfits.found,
        "more": share.misfits.more,
        "in_isr": [*share.in_isr().items()],
        "types": share.record_types(),
    }
    if number == 0:
        found["brokers"] = [[broker_id, broker.fenced] for broker_id, broker in share.image.brokers.items()]
    return json.dumps(found)


def add_up(results: Iterable[str], cuts: Sequence[Offset]) -> Replayed:
    """Return the result of all shares. A cut at which no share has records has an empty image."""
    sums, counts = dict.fromkeys(cuts, 0), dict.fromkeys(cuts, 0)
    found: list[Found] = []
    more: Counter[str] = Counter()
    types: Counter[str] = Counter()
    brokers: dict[NodeId, bool] = {}
    in_isr: dict[NodeId, str] = {}
    for share in map(json.loads, results):
        for cut, digest, count in share["digests"]:
            sums[cut] += int(digest, 16)
            counts[cut] += count
        found += map(_found, share["misfits"])
        more.update(share["more"])
        types.update(share["types"])
        brokers.update(map(tuple, share.get("brokers", ())))
        in_isr = {**dict(map(tuple, share["in_isr"])), **in_isr}
    digests = {cut: (digest_to_bytes(sums[cut] % MODULUS), counts[cut]) for cut in cuts}
    misfits = _bounded(_explained(_merged(found)), more)
    is_whole = all(each.rule != UNREAD for each in found)
    record_types = {name: count for name, count in types.items() if count}
    return Replayed(digests, misfits, dict(more), brokers, in_isr, record_types, is_whole)


def _found(values: Sequence[Any]) -> Found:
    offset, rule, entity, reason, followers, because, is_told = values
    return Found(offset, rule, tuple(entity), reason, followers, because and tuple(because), is_told)


def _merged(found: Iterable[Found]) -> list[Found]:
    """Join the misfits of one record in several shares: one share tells the misfit, and the followers are added."""
    merged: dict[tuple[Offset, str, EntityKey], Found] = {}
    for each in found:
        place = each.offset, each.rule, each.entity
        other = merged.get(place)
        if other is not None:
            is_double = each.is_told and other.is_told
            first, second = sorted((each, other), key=lambda one: (not one.is_told, one.reason))
            each = first._replace(followers=first.followers + second.followers + is_double)
        merged[place] = each
    return sorted(each for each in merged.values() if each.is_told)


def _explained(found: Iterable[Found]) -> list[Found]:
    """Count as a follower each misfit that an earlier misfit of another entity explains. `found` is by offset."""
    left: list[Found] = []
    places: dict[EntityKey, int] = {}
    for each in found:
        cause = None if each.because is None else places.get(each.because)
        if cause is not None:
            left[cause] = left[cause]._replace(followers=left[cause].followers + 1 + each.followers)
            continue
        if each.entity:
            places.setdefault(each.entity, len(left))
        left.append(each)
    return left


def _bounded(found: Iterable[Found], more: Counter[str]) -> tuple[Found, ...]:
    counts: Counter[str] = Counter()
    left = []
    for each in found:
        counts[each.rule] += 1
        if counts[each.rule] <= MISFITS_MAX:
            left.append(each)
        else:
            more[each.rule] += 1
    return tuple(left)
