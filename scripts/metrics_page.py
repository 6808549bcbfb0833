"""Writes docs/metrics.md: every metric of controllers and brokers, and every problem, from the tables in the code.

`python scripts/metrics_page.py` writes the file; tests/test_generated_pages.py fails while it says something else.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from broker_agent.data_plane.metric_table import PARTITION_METRICS
from broker_agent.metric_table import BROKER_METRICS
from quorum.core.protocol.problem import ProblemCode
from quorum.wire.reporting.metric_table import CONTROLLER_METRICS
from scripts.docstrings import docstrings
from service_kit.process.metrics import Metric

PATH: Final = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"

HEAD: Final = """# Metrics

Written by `scripts/metrics_page.py` from `quorum/wire/reporting/metric_table.py`, `broker_agent/metric_table.py` and
`broker_agent/data_plane/metric_table.py`; don't edit it here.

A daemon with `metrics.listener: 127.0.0.1:9101` in its configuration serves this page's metrics for Prometheus:

```
$ curl -s http://127.0.0.1:9101/metrics | grep -e '_state{role="leader"' -e '_problem{code="disk_full"'
metaquorum_current_state{role="leader"} 1.0
metaquorum_problem{code="disk_full"} 0.0
```

In a dev cluster the daemons take free ports, as below. The line `metrics` in `DIR/controller-1/log` has the port of controller 1:

```
$ quorumctl dev up --dir DIR --set metrics.listener=127.0.0.1:0 --set-broker metrics.listener=127.0.0.1:0
$ grep -h '"metrics"' DIR/*/log
2026-11-23T01:00:22.645817Z info broker_agent "metrics" node_id=101 role=broker port=38837
2026-11-23T01:00:22.725471Z info quorumd "metrics" node_id=1 port=42277
```

A daemon writes this line at each start. After a restart a log has several such lines, and the last one has the port.

A number that a node does not know is NaN. Each daemon also shows `process_*`: memory, CPU time and open files.

Metrics cost a controller about 1 us in each turn, and some 4 ms for each page. Brokers, topics and partitions are counted in a
thread, at most once a second and only for what has changed; a page shows the newest counts.

## Alerts

Nine rules that find most of what goes wrong. The runbook says what to do.

| alert when | because |
|---|---|
| `max(metaquorum_problem) by (instance, code) == 1` | a controller reports a problem; its code is a row of the runbook |
| `sum(metaquorum_active_controller) != 1` for 10 s | no controller decides, or metrics of one are missing |
| `max(metaquorum_offline_partitions) > 0` | no broker leads these partitions |
| `max(metaquorum_under_min_isr_partitions) > 0` | producers that want all replicas are refused |
| `max(metaquorum_brokers{state="fenced"}) > 0` for 1 min | a broker is gone |
| `increase(metaquorum_happenings_total{kind="broker_fenced"}[10m]) > 0` | a broker was fenced, perhaps for seconds |
| `increase(metaquorum_damage_found_total[1h]) > 0` | a disk returned wrong bytes; a quick repair shows no problem |
| `metaquorum_certificate_expiry_timestamp_seconds - time() < 14 * 86400` | other nodes soon refuse this node |
| `up == 0`, or `/readyz` without an answer for 5 s | a controller whose disk hangs answers nothing, and shows no metric |
"""


def page() -> str:
    """The whole file."""
    parts = [
        HEAD,
        "## Problems\n",
        "The codes of `metaquorum_problem`. A code with * makes `/readyz` answer 503.\n",
        *_problems(),
        "\n## Controllers\n",
        *_table(CONTROLLER_METRICS),
        "\n## Brokers\n",
        *_table(BROKER_METRICS),
        "\n## Brokers with `broker.data.plane: partitions`\n",
        *_table(PARTITION_METRICS),
    ]
    return "\n".join(parts) + "\n"


def _problems() -> Iterator[str]:
    texts = docstrings(ProblemCode)
    yield "| code | meaning |"
    yield "|---|---|"
    for code in ProblemCode:
        yield f"| `{code.value}`{' *' if code.blocks_ready else ''} | {texts[code.name]} |"


def _table(rows: Iterable[Metric[Any]]) -> Iterator[str]:
    yield "| name | type | labels | meaning |"
    yield "|---|---|---|---|"
    for row in rows:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        yield f"| `{row.full_name}` | {row.kind.value} | {labels} | {row.help} |"


if __name__ == "__main__":
    PATH.write_text(page())
    print(f"wrote {PATH}")
