"""The shape's arithmetic, compared with a simple model that stores one epoch for each record."""

from random import Random

from metadata_log.format.ids import OffsetAndEpoch
from metadata_log.format.log_shape import EpochStart, LogShape


def shape_of(start: OffsetAndEpoch, epochs: list[int]) -> LogShape:
    """Make the shape of a log whose records, from `start` on, have these epochs."""
    table: list[EpochStart] = []
    for i, epoch in enumerate(epochs):
        if not table or table[-1].epoch != epoch:
            table.append(EpochStart(epoch, start.offset + i))
    end = start.offset + len(epochs)
    return LogShape(start, end, end, tuple(table), bytes(32), bytes(32))


def test_epoch_arithmetic_agrees_with_a_list_of_epochs() -> None:
    rng = Random(1)
    for _ in range(300):
        start = OffsetAndEpoch(rng.choice([0, 7]), rng.choice([0, 2]))
        epochs = sorted(rng.randint(max(1, start.epoch), 8) for _ in range(rng.randint(0, 10)))
        shape = shape_of(start, epochs)
        shape.check_invariants()

        assert shape.last_epoch == (epochs[-1] if epochs else start.epoch)
        for offset in range(start.offset - 2, shape.end + 3):
            below = offset - start.offset - 1
            expected = start.epoch if below == -1 else epochs[below] if 0 <= below < len(epochs) else None
            assert shape.epoch_below(offset) == expected, (shape, offset)
        for epoch in range(10):
            known = [i for i, each in enumerate(epochs) if each <= epoch]
            expected_end = OffsetAndEpoch(start.offset + known[-1] + 1, epochs[known[-1]]) if known else start
            assert shape.end_of_epoch(epoch) == expected_end, (shape, epoch)
