"""A standalone Spark cluster from the pip package: a master and workers, each a process, on this machine."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from snapshots.offline.java import require_java

_MASTER = re.compile(r"Starting Spark master at (?P<url>spark://\S+)")
_REGISTERED = re.compile("Successfully registered with master")


class SparkCluster:
    """The master's URL, and the environment in which a job is submitted."""

    def __init__(self, url: str, environment: dict[str, str]) -> None:
        self.url = url
        self._environment = environment

    def submit(self, modules: Path, program: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run `spark-submit` as an operator does, with small executors."""
        options = ["--executor-memory", "512m", "--conf", "spark.executor.cores=1", "--py-files", str(modules)]
        command = [str(_spark("spark-submit")), "--master", self.url, *options, str(program), *words]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=300)


def without_info(said: str) -> str:
    """Return the lines of a job that are more than Spark's running commentary."""
    return "\n".join(line for line in said.splitlines() if " INFO " not in line)


def _spark(name: str) -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "bin" / name


@contextmanager
def spark_cluster(directory: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """Start a master and workers, and stop them at the end. Python's path is empty: modules come from the job alone."""
    require_java()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(directory),
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        words = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        url = stack.enter_context(_daemon(words, environment, _MASTER))["url"]
        for _ in range(workers):
            words = [
                f"{deploy}.worker.Worker",
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                "-c",
                "1",
                "-m",
                "512m",
                url,
            ]
            stack.enter_context(_daemon(words, environment, _REGISTERED))
        yield SparkCluster(url, environment)


@contextmanager
def _daemon(words: list[str], environment: dict[str, str], ready: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Start a daemon, wait for the line that says that it is ready, and read on, so that its pipe never fills."""
    command = [str(_spark("spark-class")), *words]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        said: list[str] = []
        found = None
        while found is None and (line := run.stderr.readline()):
            said.append(line)
            found = ready.search(line)
        assert found is not None, "".join(said)
        reader = threading.Thread(target=run.stderr.read)
        reader.start()
        try:
            yield found
        finally:
            run.terminate()
            run.wait(30)
            reader.join()
