"""Apache Kafka of a given version, as jars in a cache directory. Maven fetches them; no address is written anywhere here.

The benchmarks take one fixed version, and `tests/snapshots/kafka/make_logs.py` takes several.

The jars come once for each version, into `~/.cache/metaquorum-bench/kafka-VERSION` (`XDG_CACHE_HOME` moves it). Example:

    1. The cache is empty. `find_jars` writes a list of artifacts for Maven, and `mvn` copies 54 MB of jars.
    2. The next call finds the mark `complete`, and starts nothing.
    3. On a machine without Maven or without a way out, `find_jars` raises KafkaNotFound, and the benchmark runs without Kafka.
"""

import os
import shutil
import subprocess
from pathlib import Path

VERSION = "4.1.0"
LOGGER_VERSION = "1.7.36"
OLDEST_JAVA = 17
FETCH_S = 600


class KafkaNotFound(Exception):
    """This machine has no Apache Kafka, and cannot get it. The message says why."""


def find_jars(version: str = VERSION) -> Path:
    """The directory with the jars of Kafka `version`, fetched if it is not there yet.

    Raises:
        KafkaNotFound: there is no Java 17, or no Maven, or Maven fetches nothing.
    """
    _check_java()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "metaquorum-bench" / f"kafka-{version}"
    jars, complete = cache / "lib", cache / "complete"
    if complete.exists():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaNotFound("no Apache Kafka: its jars come by Maven, and this machine has no `mvn`; install Maven")
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "pom.xml").write_text(_pom(version))
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(command, cwd=cache, capture_output=True, text=True, check=False, timeout=FETCH_S)
    except subprocess.TimeoutExpired as e:
        raise KafkaNotFound(f"no Apache Kafka: Maven did not fetch its jars within {FETCH_S} s") from e
    if done.returncode:
        words = " ".join((done.stdout + done.stderr).split())[:300]
        raise KafkaNotFound(f"no Apache Kafka: Maven could not fetch its jars: {words}")
    complete.touch()
    return jars


def _check_java() -> None:
    if shutil.which("java") is None:
        raise KafkaNotFound(f"no Apache Kafka: this machine has no `java`; install a Java {OLDEST_JAVA} or newer")
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = done.stderr.partition('version "')[2].split(".")[0].strip('"')
    if not found.isdecimal() or int(found) < OLDEST_JAVA:
        raise KafkaNotFound(f"no Apache Kafka: `java` is not Java {OLDEST_JAVA} or newer")


def _pom(version: str) -> str:
    artifacts = (
        ("org.apache.kafka", "kafka_2.13", version),
        ("org.apache.kafka", "kafka-tools", version),
        ("org.slf4j", "slf4j-simple", LOGGER_VERSION),
    )
    wanted = "\n".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{release}</version></dependency>"
        for group, name, release in artifacts
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>kafka</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>\n{wanted}\n</dependencies></project>\n"
    )
