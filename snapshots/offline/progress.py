"""The progress of a job: its stage, records a second and the time left, on a terminal or in a log.

Spark knows how many tasks of the running stages have ended, and the job knows how many records the logs have. Example: the logs
have 3,000,000 records, and 6 of 18 tasks have ended after 10 s.
    1. a third of the records is 1,000,000: the terminal shows `33 %  100,000 records/s  20 s left`
    2. a log (stderr is no terminal) gets a line when a stage begins, and one each LOG_EVERY_S seconds
    3. the next stage begins, and the numbers begin at 0 again
"""

import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from snapshots.offline.java import is_submitted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S: Final = 0.5
LOG_EVERY_S: Final = 30.0
TICKER: Final = "progress of a job"
"""The name of the thread that asks Spark and shows the answer."""


class Done(NamedTuple):
    """How far the running stages are."""

    tasks: int
    of: int


class Stage:
    """The present stage of a job."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.what = ""
        self.records = 0
        """The records that each stage reads; 0: not known."""
        self.began_s = clock()

    def begin(self, what: str) -> None:
        self.what, self.began_s = what, self._clock()

    def text(self, done: Done) -> str:
        """Return the stage; with numbers, if Spark has told any."""
        seconds = self._clock() - self.began_s
        if not done.tasks or seconds <= 0:
            return self.what
        share = done.tasks / done.of
        rate = f"  {self.records * share / seconds:,.0f} records/s" if self.records else ""
        return f"{self.what}: {share:.0%}{rate}  {seconds * (1 - share) / share:,.0f} s left"


class Progress:
    """Tells a person what happens: `progress("stage")` begins a stage."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._stage = Stage()
        self._show = show
        self._spark: SparkSession | None = None

    def __call__(self, what: str) -> None:
        self._stage.begin(what)
        self._show(what)

    def reads(self, spark: "SparkSession", records: int) -> None:
        """From now on stages are those of `spark`, and each reads so many records."""
        self._stage.records = records
        self._spark = spark

    def tick(self) -> None:
        """Ask Spark how far the running stages are, and show the answer if there is one."""
        if self._spark is None:
            return
        from py4j.protocol import Py4JError

        try:
            tracker = self._spark.sparkContext.statusTracker()
            stages = [
                found for each in tracker.getActiveStageIds() if (found := tracker.getStageInfo(each)) is not None
            ]
        except (Py4JError, OSError):
            self._spark = None  # Java has ended, which ends the job as well
            return
        done = Done(sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages))
        if done.tasks:
            self._show(self._stage.text(done))


@contextmanager
def shown_progress(stream: IO[str] | None = None) -> Iterator[Progress]:
    """Show progress on stderr until the block ends: one moving line on a terminal, else lines for a log.

    `spark-submit` writes a job's stderr to its own stdout, where lines of progress would spoil the JSON. So a submitted job
    shows none: Spark's own log tells its stages.
    """
    stream = stream or (io.StringIO() if is_submitted() else sys.stderr)
    ended = threading.Event()
    with _terminal(stream) if stream.isatty() else _log(stream) as (show, every_s):
        progress = Progress(show)
        ticker = threading.Thread(target=_tick, name=TICKER, args=(progress, every_s, ended), daemon=True)
        ticker.start()
        try:
            yield progress
        finally:
            ended.set()
            ticker.join()


def _tick(progress: Progress, every_s: float, ended: threading.Event) -> None:
    while not ended.wait(every_s):
        progress.tick()


@contextmanager
def _terminal(stream: IO[str]) -> Iterator[tuple[Callable[[str], None], float]]:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=Console(file=stream), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda text: bar.update(task, description=text), POLL_S


@contextmanager
def _log(stream: IO[str]) -> Iterator[tuple[Callable[[str], None], float]]:
    def show(text: str) -> None:
        stream.write(f"quorum-offline: {text}\n")
        stream.flush()

    yield show, LOG_EVERY_S
