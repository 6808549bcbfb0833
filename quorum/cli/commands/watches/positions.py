"""The position of a watch as one word, which people copy from one command line to the next.

Example: `1:1250:3:6fc6a0f5...` is generation 1, offset 1,250, epoch 3 below, and the hash of the history in hexadecimal digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from metadata_log.format.ids import OFFSET_MAX
from quorum.cli.shared_options import INT32_MAX

if TYPE_CHECKING:
    from metaquorum import WatchPosition

_CHAIN_BYTES: Final = 32
_LIMITS: Final = (INT32_MAX, OFFSET_MAX, OFFSET_MAX)


def position_text(position: WatchPosition) -> str:
    """Returns the position as one word."""
    return f"{position.generation}:{position.offset}:{position.epoch}:{position.chain.hex()}"


def parse_position(text: str) -> WatchPosition:
    """Returns the position that `position_text` made a word of.

    Raises:
        ValueError: the text is no position.
    """
    from metaquorum import WatchPosition

    *numbers, chain = text.split(":")
    try:
        generation, offset, epoch = (int(number) for number in numbers if number.isdecimal() and number.isascii())
        data = bytes.fromhex(chain)
    except ValueError:
        generation, offset, epoch, data = -1, -1, -1, b""
    if len(numbers) != len(_LIMITS) or len(data) != _CHAIN_BYTES:
        raise ValueError(f"{text!r} is no position: write GENERATION:OFFSET:EPOCH:HASH, as a watch has printed it")
    for number, limit in zip((generation, offset, epoch), _LIMITS, strict=True):
        if number > limit:
            raise ValueError(f"{text!r} is no position: {number} is greater than {limit}")
    return WatchPosition(generation, offset, epoch, data)


class Position(click.ParamType[Any]):
    """A parameter with the position of a watch."""

    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return parse_position(value)
        except ValueError as e:
            self.fail(str(e), param, ctx)
