"""The options of one simulated run: drawn from its seed, so that no two runs are alike (swarm testing)."""

import random
from typing import Final, NamedTuple

from broker_agent.partitions.manager_config import ManagerConfig
from broker_agent.replica.fetchers import FetcherConfig
from broker_agent.session.session_config import SessionConfig
from metadata_log.format.fetch_size import PIECE_BYTES_MIN
from metadata_log.store.log_config import LogConfig
from quorum.controller.controller import ControllerConfig
from quorum.core.protocol.config import RaftConfig
from quorum.runtime.protocol.node_config import NodeConfig
from snapshots.policy import MarkPolicy, RetentionPolicy
from tests.sim.rules import rules

UNLIMITED_BYTES = 1 << 30
ENTITIES_CHANCE = 0.35
"""How often clients use entities, in the runs that have room for them."""


class Options(NamedTuple):
    """Sizes, rates and probabilities of one run. Times are virtual milliseconds; a rate of 0 means never."""

    controllers: int
    spares: int
    """Controllers that are formatted as observers, and may be let in."""
    brokers: int
    client_every_ms: float

    loss: float
    duplicate: float
    delay_min_ms: float
    delay_max_ms: float
    slow_chance: float

    crash_every_ms: float
    restart_after_ms: float
    power_cut_chance: float
    crash_inside_chance: float
    crash_at_election_chance: float
    crash_of_all_chance: float
    broker_trouble_every_ms: float
    flush_failure_every_ms: float
    disk_full_every_ms: float
    read_failure_every_ms: float
    slow_disk_every_ms: float
    broker_disk_trouble_every_ms: float
    membership_every_ms: float
    disk_replaced_every_ms: float
    auto_join: bool
    cut_every_ms: float
    cut_for_ms: float
    one_way_chance: float
    pause_every_ms: float
    pause_for_ms: float
    wall_step_every_ms: float
    clock_drift: float

    only_majority_heals: bool

    flush_max_ms: float
    mark_bytes: int
    retention_bytes: int
    segment_bytes: int
    tail_bytes: int
    session_timeout_ms: int
    slice_changes: int
    request_ids: bool
    outcomes_max: int

    # Drawn with dice of their own (`_LATER`), so that a seed without these is the history that it was.
    rot_every_ms: float = 0.0
    split_every_ms: float = 0.0
    """The controllers are cut off from each other; everybody else reaches them all."""
    check_quorum_ms: int = RaftConfig().check_quorum_ms
    """How long a leader that no majority follows goes on in the belief that it leads."""
    broker_away_every_ms: float = 0.0
    """A broker that runs is out of the controllers' reach for about a session."""
    scrub_interval_ms: int = 0
    hanging_disk_every_ms: float = 0.0
    piece_bytes_min: int = PIECE_BYTES_MIN
    """The size of a first fetch; with a small one most batches travel in parts."""
    forged_chance: float = 0.0
    """How often a snapshot is sent from bad memory."""
    slow_link_every_ms: float = 0.0
    slow_links_at_the_end: bool = False
    """When all is well, a follower and a broker must catch up behind slow links (L8)."""
    balance_every_ms: int = 0
    """How often the controller gives leaderships back to preferred replicas (L10); 0: never."""
    imbalance_percentage: int = 10
    elect_chance: float = 0.0
    """How often a client asks for elections instead of doing something else."""
    transaction_slice: int = 500
    """The size of a slice; with a small one most creations of topics are transactions."""
    transaction_timeout_ms: int = 30_000
    large_topic_chance: float = 0.0
    """How often a new topic has so many partitions that it takes ten slices and more."""
    turn_pause_ms: float = 0.0
    """How long a node rests between two turns although it has more to do, so that much can happen inside of a transaction."""
    reassign_chance: float = 0.0
    """How often a client asks for reassignments instead of doing something else."""
    mode_chance: float = 0.0
    """How often a client fences or drains a broker, or ends that, instead of doing something else."""
    policy_partitions_max: int = 0
    """How many partitions the controllers' policy allows a topic, beside its rules for configs; 0: there is no policy."""

    keeps_elr: bool = False
    """The cluster keeps eligible leader replicas (M13)."""
    min_isr_change_chance: float = 0.0
    """How often a client sets `min.insync.replicas` instead of doing something else."""
    bootstrap_level: int = 2
    """The level of `metadata.version` at the start."""
    feature_change_chance: float = 0.0
    """How often a client asks for another level instead of doing something else."""
    old_release_chance: float = 0.0
    """How often a node is of an older release at the start."""
    slice_partitions: int = 10_000
    """How many partitions a slice of a walk looks at."""
    has_racks: bool = False
    """The brokers are in two racks; else in none."""
    directories: bool = False
    """Brokers have several log directories, and assign their replicas to them."""
    directory_loss_chance: float = 0.0
    """How often one of them fails, at each look of the data plane."""

    wake_at_once: int = 32
    """How many brokers are answered at the commit for which they wait, without a linger."""
    answers_per_turn: int = 64
    """How many waiting brokers a turn answers."""

    watcher_chance: float = 0.0
    """How often a watcher reports the end of a broker's process; 0: nothing outlives a broker's process."""

    agent_kill_every_ms: float = 0.0
    """How long the agent of a broker that serves lives, on average, until it is killed; 0: for ever."""

    poison_every_ms: float = 0.0
    """How often a bug makes an active controller append a batch that nobody else can apply."""

    data: bool = False
    """Brokers have replicated partitions (P1 to P8), and producers and consumers work with them."""
    lag_time_max_ms: int = 1_000
    """How long a member of an ISR may not be caught up."""
    data_disk_trouble_every_ms: float = 0.0
    """How often something goes wrong with a log directory."""

    entities: bool = False
    """Clients use entities, sessions and locks (E1 to E5)."""
    entity_every_ms: float = 0.0
    """How often each of these clients does something."""

    @classmethod
    def draw(cls, rng: random.Random) -> "Options":
        """Each kind of fault is absent from some runs: the bugs behind a noisy fault show when that fault is away."""
        drawn = _first(rng)
        apart = random.Random()
        apart.setstate(rng.getstate())
        for draw_more in _LATER:
            drawn = draw_more(drawn, apart)
        return drawn

    def node_config(self) -> NodeConfig:
        """The configuration of the controllers. Lease and quorum age are the defaults' share of the session."""
        config = NodeConfig(
            controller=ControllerConfig(
                session_timeout_ms=self.session_timeout_ms,
                slice_changes_max=self.slice_changes,
                bootstrap_elr_version=int(self.keeps_elr),
                slice_partitions_max=self.slice_partitions,
                bootstrap_metadata_version=self.bootstrap_level,
                transaction_slice_records=self.transaction_slice,
                one_batch_records_max=self.transaction_slice,
                transaction_timeout_ms=self.transaction_timeout_ms,
                request_outcomes_max=self.outcomes_max,
                policy=rules(self.policy_partitions_max),
                auto_leader_rebalance=self.balance_every_ms > 0,
                leader_imbalance_check_interval_ms=self.balance_every_ms or 300_000,
                leader_imbalance_percentage=self.imbalance_percentage,
            ),
            log=LogConfig(segment_bytes=self.segment_bytes, tail_bytes=self.tail_bytes),
            marks=MarkPolicy(bytes_between=self.mark_bytes),
            retention=RetentionPolicy(max_bytes=self.retention_bytes),
            raft=RaftConfig(
                auto_join=self.auto_join,
                check_quorum_ms=self.check_quorum_ms,
                piece_bytes_min=self.piece_bytes_min,
            ),
            lease_ms=self.session_timeout_ms * 5 // 9,
            quorum_age_ms=self.session_timeout_ms * 2 // 9,
            apply_at_once_records=self.slice_changes,
            broker_wake_at_once_max=self.wake_at_once,
            broker_answers_per_turn_max=self.answers_per_turn,
            scrub_interval_ms=self.scrub_interval_ms,
        )
        assert not config.problems(), config.problems()
        return config

    def manager_config(self) -> ManagerConfig:
        """The configuration of the brokers' partitions."""
        return ManagerConfig(
            lag_time_max_ms=self.lag_time_max_ms,
            fetchers=FetcherConfig(backoff_ms=50, backoff_max_ms=400),
            high_watermark_interval_ms=1_000,
            retention_interval_ms=5_000,
            disk_retry_ms=100,
            open_logs_max=8,
        )

    def session_config(self) -> SessionConfig:
        """The configuration of the brokers: the defaults, shrunk like the session."""

        def share(of_default_ms: int) -> int:
            return of_default_ms * self.session_timeout_ms // 9_000

        return SessionConfig(
            max_wait_ms=share(2_000),
            fenced_max_wait_ms=share(500),
            request_timeout_ms=share(1_000),
            contact_interval_ms=share(1_000),
            piece_bytes_min=self.piece_bytes_min,
        )


def _first(rng: random.Random) -> Options:
    def sometimes(value: float, chance: float = 0.7) -> float:
        return value if rng.random() < chance else 0.0

    voters = rng.choice((3, 3, 3, 3, 3, 5, 5, 1, 2))
    membership_every_ms = sometimes(rng.uniform(200.0, 2_000.0), 0.35)
    changes = membership_every_ms > 0
    return Options(
        controllers=voters,
        spares=rng.randint(0, 5 - voters) if changes else 0,
        brokers=rng.choice((0, 1, 2, 3, 3)),
        client_every_ms=rng.choice((5.0, 20.0, 60.0, 200.0)),
        loss=sometimes(rng.uniform(0.0, 0.15)),
        duplicate=sometimes(rng.uniform(0.0, 0.15)),
        delay_min_ms=rng.uniform(0.1, 3.0),
        delay_max_ms=rng.choice((4.0, 10.0, 40.0)),
        slow_chance=sometimes(rng.uniform(0.0, 0.03)),
        crash_every_ms=sometimes(rng.uniform(400.0, 5_000.0)),
        restart_after_ms=rng.uniform(20.0, 2_000.0),
        power_cut_chance=rng.random(),
        crash_inside_chance=rng.uniform(0.0, 0.8),
        crash_at_election_chance=sometimes(rng.uniform(0.0, 0.5), 0.5),
        crash_of_all_chance=sometimes(0.2, 0.5),
        broker_trouble_every_ms=sometimes(rng.uniform(300.0, 6_000.0)),
        flush_failure_every_ms=sometimes(rng.uniform(1_000.0, 8_000.0), 0.3),
        disk_full_every_ms=sometimes(rng.uniform(2_000.0, 8_000.0), 0.2),
        read_failure_every_ms=sometimes(rng.uniform(2_000.0, 8_000.0), 0.2),
        slow_disk_every_ms=sometimes(rng.uniform(1_000.0, 6_000.0), 0.2),
        broker_disk_trouble_every_ms=sometimes(rng.uniform(500.0, 5_000.0), 0.3),
        membership_every_ms=membership_every_ms,
        disk_replaced_every_ms=sometimes(rng.uniform(3_000.0, 10_000.0), 0.6 if changes else 0.0),
        auto_join=changes and rng.random() < 0.7,
        cut_every_ms=sometimes(rng.uniform(400.0, 5_000.0)),
        cut_for_ms=rng.choice((300.0, 1_500.0, 4_000.0)) * rng.uniform(0.5, 1.5),
        one_way_chance=rng.random(),
        pause_every_ms=sometimes(rng.uniform(800.0, 6_000.0), 0.5),
        pause_for_ms=rng.uniform(50.0, 3_000.0),
        wall_step_every_ms=sometimes(2_000.0, 0.3),
        clock_drift=sometimes(0.04, 0.5),
        only_majority_heals=not changes and rng.random() < 0.3,
        flush_max_ms=rng.choice((0.5, 3.0, 30.0)),
        mark_bytes=rng.choice((1 << 11, 1 << 13, 1 << 30)),
        retention_bytes=rng.choice((1 << 12, 1 << 14, UNLIMITED_BYTES)),
        segment_bytes=rng.choice((1 << 12, 1 << 14, 1 << 16)),
        tail_bytes=rng.choice((1 << 10, 1 << 16)),
        session_timeout_ms=rng.choice((1_500, 3_000, 9_000)),
        slice_changes=rng.choice((2, 1_000)),
        request_ids=rng.random() < 0.5,
        outcomes_max=rng.choice((5, 30)),
    )


def _rot(drawn: Options, rng: random.Random) -> Options:
    """One loss at a time: no rot where disks are replaced, nor where a majority must do without the others."""
    if drawn.controllers < 3 or drawn.membership_every_ms or drawn.only_majority_heals:
        return drawn
    return drawn._replace(rot_every_ms=rng.uniform(500.0, 4_000.0) if rng.random() < 0.8 else 0.0)


def _splits(drawn: Options, rng: random.Random) -> Options:
    """Leaders that learn late of their successors, in sessions so short that many end, under few writes."""
    if drawn.controllers == 1 or rng.random() >= 0.4:
        return drawn
    drawn = drawn._replace(
        split_every_ms=rng.uniform(500.0, 4_000.0),
        check_quorum_ms=rng.choice((1_000, 3_000)),
        session_timeout_ms=rng.choice((1_500, drawn.session_timeout_ms)),
        client_every_ms=max(20.0, drawn.client_every_ms),
    )
    if rng.random() >= 0.5:
        return drawn
    # No other fault: a deposed leader lives on behind its cut, and so do the brokers that come to it.
    return drawn._replace(
        crash_every_ms=0.0,
        broker_trouble_every_ms=0.0,
        cut_every_ms=0.0,
        pause_every_ms=0.0,
        flush_failure_every_ms=0.0,
        membership_every_ms=0.0,
        disk_replaced_every_ms=0.0,
    )


def _brokers_away(drawn: Options, rng: random.Random) -> Options:
    """Brokers out of reach for a session, and disks so slow that a decision is long not committed."""
    if not drawn.brokers or rng.random() >= 0.4:
        return drawn
    return drawn._replace(
        broker_away_every_ms=rng.uniform(500.0, 3_000.0),
        slow_disk_every_ms=rng.choice((drawn.slow_disk_every_ms, rng.uniform(400.0, 2_000.0))),
        session_timeout_ms=1_500,
        client_every_ms=max(60.0, drawn.client_every_ms),
    )


def _disks_and_links(drawn: Options, rng: random.Random) -> Options:
    """Rot that is found behind a slow link only would be mended with pieces of a megabyte: no slow link at the end there."""
    may_end_slowly = drawn.brokers > 0 and drawn.controllers >= 3 and not drawn.rot_every_ms
    return drawn._replace(
        scrub_interval_ms=rng.choice((0, 500, 4_000)),
        hanging_disk_every_ms=rng.uniform(4_000.0, 12_000.0) if rng.random() < 0.2 else 0.0,
        piece_bytes_min=rng.choice((128, 128, 128, PIECE_BYTES_MIN)),
        forged_chance=rng.choice((0.0, 0.3, 0.6)),
        slow_link_every_ms=rng.uniform(500.0, 5_000.0) if rng.random() < 0.3 else 0.0,
        slow_links_at_the_end=may_end_slowly and rng.random() < 0.8,
    )


def _balancing(drawn: Options, rng: random.Random) -> Options:
    """Leaderships are moved, by the controller itself and by clients. In the other runs leaders stay where failures have left
    them."""
    if drawn.brokers < 2 or rng.random() >= 0.5:
        return drawn
    return drawn._replace(
        balance_every_ms=rng.choice((0, 300, 1_000)),
        imbalance_percentage=rng.choice((0, 10, 50)),
        elect_chance=rng.choice((0.0, 0.05, 0.3)),
    )


def _transactions(drawn: Options, rng: random.Random) -> Options:
    """Creations of topics in several batches. If a transaction may take no time at all, many are aborted."""
    if not drawn.brokers or rng.random() >= 0.5:
        return drawn
    return drawn._replace(
        transaction_slice=rng.choice((1, 2, 3)),
        transaction_timeout_ms=rng.choice((30, 30_000, 30_000)),
        turn_pause_ms=rng.choice((1.0, 5.0, 15.0)),
        large_topic_chance=rng.choice((0.0, 0.1, 0.3)),
        client_every_ms=max(20.0, drawn.client_every_ms),
    )


def _reassigning(drawn: Options, rng: random.Random) -> Options:
    """Replicas move between brokers. In the other runs a partition keeps the replicas with which it was created. Where the end is
    slow links, clients must write much, and reassign nothing."""
    if drawn.brokers < 2 or drawn.slow_links_at_the_end or rng.random() >= 0.5:
        return drawn
    return drawn._replace(reassign_chance=rng.choice((0.05, 0.2, 0.4)))


def _modes(drawn: Options, rng: random.Random) -> Options:
    """Operators fence and drain brokers. In the other runs a broker is fenced only by its session, or by its own wish."""
    if not drawn.brokers or rng.random() >= 0.4:
        return drawn
    return drawn._replace(mode_chance=rng.choice((0.02, 0.1, 0.3)))


def _eligible_leaders(drawn: Options, rng: random.Random) -> Options:
    """Members that leave a small ISR are remembered, while brokers often crash and stop. In the other runs the last member of an
    ISR stays in the ISR."""
    if drawn.brokers < 2 or rng.random() >= 0.5:
        return drawn
    return drawn._replace(
        keeps_elr=True,
        min_isr_change_chance=rng.choice((0.03, 0.1)),
        broker_trouble_every_ms=rng.uniform(150.0, 1_000.0),
        session_timeout_ms=1_500,
        client_every_ms=max(60.0, drawn.client_every_ms),
    )


def _features(drawn: Options, rng: random.Random) -> Options:
    """Levels of features rise and fall, and some nodes are of an older release for a while. Small slices are many batches,
    for which a slow link has no room."""
    if rng.random() >= 0.5:
        return drawn
    level = 2 if drawn.keeps_elr else rng.choice((1, 1, 2))
    return drawn._replace(
        bootstrap_level=level,
        feature_change_chance=rng.choice((0.02, 0.1)),
        old_release_chance=rng.choice((0.0, 0.3, 0.7)) if level == 1 else 0.0,
        slice_partitions=10_000 if drawn.slow_links_at_the_end else rng.choice((2, 10_000)),
    )


def _policies(drawn: Options, rng: random.Random) -> Options:
    """The controllers have rules about topics and configs, which clients do not know. In the other runs everything is allowed.
    Clients must write much if the end is slow links."""
    if not drawn.brokers or drawn.slow_links_at_the_end or rng.random() >= 0.3:
        return drawn
    return drawn._replace(policy_partitions_max=rng.choice((3, 6)))


def _racks(drawn: Options, rng: random.Random) -> Options:
    """Brokers are in racks (M17)."""
    return drawn._replace(has_racks=drawn.brokers >= 2 and rng.random() < 0.5)


def _poisons(drawn: Options, rng: random.Random) -> Options:
    """Batches that cannot be applied, at one level of features. A snapshot would have their effect for ever, so only clients ask
    for snapshots; and no log rots, because a node may load no snapshot over the batch."""
    if rng.random() >= 0.12:
        return drawn
    return drawn._replace(
        poison_every_ms=rng.uniform(100.0, 800.0),
        bootstrap_level=2,
        feature_change_chance=0.0,
        old_release_chance=0.0,
        mark_bytes=1 << 30,
        rot_every_ms=0.0,
        scrub_interval_ms=0,
        slow_links_at_the_end=False,
    )


def _directories(drawn: Options, rng: random.Random) -> Options:
    """Brokers have several log directories, and lose some. Brokers on slow links have no room for assignments."""
    if not drawn.brokers or drawn.slow_links_at_the_end or rng.random() >= 0.5:
        return drawn
    return drawn._replace(directories=True, directory_loss_chance=rng.choice((0.03, 0.1, 0.3)))


def _waves(drawn: Options, rng: random.Random) -> Options:
    """A commit wakes the brokers in slices, as it wakes a thousand brokers. In the other runs all are answered at the commit."""
    if drawn.brokers < 2 or rng.random() >= 0.4:
        return drawn
    return drawn._replace(wake_at_once=rng.choice((0, 1)), answers_per_turn=rng.choice((1, 2)))


def _watchers(drawn: Options, rng: random.Random) -> Options:
    """Watchers report the ends of brokers' processes, and data planes live on."""
    if not drawn.brokers or rng.random() >= 0.4:
        return drawn
    return drawn._replace(watcher_chance=rng.choice((0.3, 1.0)), agent_kill_every_ms=rng.uniform(500.0, 4_000.0))


def _data(drawn: Options, rng: random.Random) -> Options:
    """Brokers with replicated partitions. Metadata changes less often then, and clocks differ by up to a tenth."""
    if drawn.brokers < 2 or drawn.slow_links_at_the_end or rng.random() >= 0.5:
        return drawn
    return drawn._replace(
        data=True,
        brokers=rng.choice((3, 3, 4)),
        lag_time_max_ms=rng.choice((300, 800, 2_000)),
        data_disk_trouble_every_ms=rng.uniform(1_500.0, 8_000.0) if rng.random() < 0.3 else 0.0,
        clock_drift=0.05 if drawn.clock_drift else 0.0,
        session_timeout_ms=rng.choice((1_500, 3_000)),
        client_every_ms=max(300.0, drawn.client_every_ms),
        large_topic_chance=0.0,
        policy_partitions_max=0,
        flush_max_ms=min(drawn.flush_max_ms, 10.0),
        directories=False,
        directory_loss_chance=0.0,
    )


def _entities(drawn: Options, rng: random.Random) -> Options:
    """Clients with entities. Brokers' data, slow links and changes of levels have other runs. Sessions are short."""
    if drawn.data or drawn.slow_links_at_the_end or rng.random() >= ENTITIES_CHANCE:
        return drawn
    return drawn._replace(
        entities=True,
        entity_every_ms=rng.choice((30.0, 80.0, 150.0)),
        client_every_ms=max(150.0, drawn.client_every_ms),
        session_timeout_ms=1_500 if drawn.split_every_ms else rng.choice((1_500, 3_000)),
        slow_disk_every_ms=rng.choice((drawn.slow_disk_every_ms, rng.uniform(400.0, 2_000.0))),
        bootstrap_level=3,
        feature_change_chance=0.0,
        old_release_chance=0.0,
    )


_LATER: Final = (
    _rot,
    _splits,
    _brokers_away,
    _disks_and_links,
    _balancing,
    _transactions,
    _reassigning,
    _modes,
    _eligible_leaders,
    _features,
    _policies,
    _racks,
    _poisons,
    _directories,
    _waves,
    _watchers,
    _data,
    _entities,
)
"""One step after the other: a later one sees what the earlier ones have drawn."""
