"""What one simulated run is like: drawn from its seed, so that no two runs are alike (swarm testing)."""

import random
from typing import NamedTuple


class Options(NamedTuple):
    """Sizes, rates and probabilities of one run. Times are virtual milliseconds."""

    controllers: int
    brokers: int
    loss: float
    duplicate: float
    delay_min_ms: float
    delay_max_ms: float
    slow_chance: float
    crash_every_ms: float
    restart_after_ms: float
    power_cut_chance: float
    crash_inside_chance: float
    cut_every_ms: float
    cut_for_ms: float
    one_way_chance: float
    pause_every_ms: float
    pause_for_ms: float
    wall_step_every_ms: float
    flush_max_ms: float
    client_every_ms: float
    mark_bytes: int
    retention_bytes: int
    segment_bytes: int

    @classmethod
    def draw(cls, rng: random.Random) -> "Options":
        """Each kind of fault is absent from some runs: what hides behind a noisy fault shows when that one is away."""

        def sometimes(value: float, chance: float = 0.7) -> float:
            return value if rng.random() < chance else 0.0

        return cls(
            controllers=rng.choice((3, 3, 3, 3, 5, 1)),
            brokers=rng.choice((0, 1, 2, 3)),
            loss=sometimes(rng.uniform(0.0, 0.15)),
            duplicate=sometimes(rng.uniform(0.0, 0.15)),
            delay_min_ms=rng.uniform(0.1, 3.0),
            delay_max_ms=rng.choice((4.0, 10.0, 40.0)),
            slow_chance=sometimes(rng.uniform(0.0, 0.03)),
            crash_every_ms=sometimes(rng.uniform(400.0, 5_000.0)),
            restart_after_ms=rng.uniform(20.0, 2_000.0),
            power_cut_chance=rng.random(),
            crash_inside_chance=rng.uniform(0.0, 0.8),
            cut_every_ms=sometimes(rng.uniform(400.0, 5_000.0)),
            cut_for_ms=rng.uniform(50.0, 2_500.0),
            one_way_chance=rng.random(),
            pause_every_ms=sometimes(rng.uniform(800.0, 6_000.0), 0.5),
            pause_for_ms=rng.uniform(50.0, 3_000.0),
            wall_step_every_ms=sometimes(2_000.0, 0.3),
            flush_max_ms=rng.choice((0.5, 3.0, 30.0)),
            client_every_ms=rng.choice((5.0, 20.0, 60.0)),
            mark_bytes=rng.choice((1 << 11, 1 << 13, 1 << 30)),
            retention_bytes=rng.choice((1 << 12, 1 << 14, 1 << 30)),
            segment_bytes=rng.choice((1 << 12, 1 << 14, 1 << 16)),
        )
