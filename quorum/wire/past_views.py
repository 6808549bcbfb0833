"""Reads of the past: the view of a read with an older image in it. The same for all rows of all tables.

1. A client asks ListTopics with `at_offset` 1,244 of controller 1, which leads, and has applied 5,000 records.
2. A majority confirms that controller 1 leads, as for every read. So each offset below 5,000 is committed history.
3. The view gets the image at 1,244, and loses the controller's soft state: nobody knows any more when a broker was heard then.
"""

from dataclasses import replace
from typing import Any

from quorum.runtime.facade import ControllerNode
from quorum.runtime.protocol.requests import ReadView
from quorum.wire.convert.errors import BadMessage
from snapshots.history.wanted import Wanted


def wanted_of(asked: Any) -> Wanted | None:
    """Returns the position that a RequestContext names; None: the newest image. Raises BadMessage: an impossible position."""
    found = {name: getattr(asked, name) for name in ("at_offset", "at_time_ms") if asked.HasField(name)}
    for name, value in found.items():
        if value < 0:
            raise BadMessage(f"{name} is {value}; the first one is 0")
    return Wanted(found.get("at_offset"), found.get("at_time_ms")) if found else None


def refuse_position(asked: Any) -> None:
    """Raises BadMessage: a call that does not read the image has a position."""
    if wanted_of(asked) is not None:
        raise BadMessage(
            "at_offset and at_time_ms are for reads of the image; this call changes something, or asks the node itself"
        )


async def view_at(node: ControllerNode, wanted: Wanted, view: ReadView, timeout_ms: int) -> ReadView:
    """Returns `view` with the image at `wanted`, and without soft state. Raises Refused."""
    image = await node.past_image(wanted, view.as_of_offset, timeout_ms)
    return replace(view, as_of_offset=image.offset, image=image, controller=None)
