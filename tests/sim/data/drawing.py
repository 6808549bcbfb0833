"""The partitions of a run as fixed-width lines, for the story of a failure.

data-0       leader 101 e7 p12 ISR 101,102        committed 40
    b101 L e7 [0,42) f40 hw40   b102 f e7 [0,40) f40 hw38   b103 -
         | |  log   |   high watermark
     role  |        flushed end
           leader epoch
Roles: L leader, f follower, . at rest or not open, ! failed, - no replica, X the broker is down.
"""

from typing import TYPE_CHECKING

from metadata_log.format.partition_state import ISR, LEADER, LEADER_EPOCH, PARTITION_EPOCH, REPLICAS
from tests.sim.data.plane import DataPlane
from tests.sim.data.views import hosted_of
from tests.sim.laws.partitions.committed import Place

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

WIDTH = 36


def draw(cluster: "Cluster") -> str:
    """All partitions in which something was committed, and that exist."""
    laws, lines = cluster.laws.partitions, []
    for place in laws.places():
        topic = cluster.laws.history.image.topic_by_id(place[0])
        state = None if topic is None else topic.state(place[1])
        known = laws.of(place)
        if state is None or known.end == 0:
            continue
        isr, replicas = ",".join(map(str, state[ISR])), ",".join(map(str, state[REPLICAS]))
        leader = f"leader {state[LEADER]} e{state[LEADER_EPOCH]} p{state[PARTITION_EPOCH]} ISR {isr} of {replicas}"
        lines.append(f"{known.name:<12} {leader:<48} committed {known.end}")
        planes = [each.data for each in cluster.brokers.values() if each.data is not None]
        lines.append("    " + " ".join(_replica(each, place) for each in planes))
    return "\n".join(lines)


def _replica(plane: DataPlane, place: Place) -> str:
    if plane.manager is None:
        return f"{plane.name} X".ljust(WIDTH)
    hosted = hosted_of(plane.manager).get(place)
    if hosted is None:
        return f"{plane.name} -".ljust(WIDTH)
    role = hosted.leader or hosted.follower
    if role is None or hosted.log is None:
        return f"{plane.name} {'!' if hosted.failure else '.'}".ljust(WIDTH)
    shape, letter = hosted.log.shape, "L" if hosted.leader else "f"
    log = f"[{shape.start.offset},{shape.end}) f{shape.flushed_end} hw{role.high_watermark}"
    return f"{plane.name} {letter} e{role.leader_epoch} {log}".ljust(WIDTH)
