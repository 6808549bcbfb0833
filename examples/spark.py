"""Spark for the demo, in a process group of its own that ends with the demo."""

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from narrator import DoesNotHold

JOBS: Final = Path(__file__).resolve().with_name("spark_jobs.py")
ANSWER_BYTES_MAX: Final = 64 << 20
END_WAIT_S: Final = 20.0
POLL_S: Final = 0.02


class Spark:
    """`spark_jobs.py` as a process. The first job starts the process."""

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        self.version = ""
        self.start_s = 0.0
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, **request: Any) -> dict[str, Any]:
        """Runs a job and returns the answer.

        Raises:
            DoesNotHold: the job, or Spark itself, has failed.
        """
        if self._process is None:
            await self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        return await self._answer()

    async def _start(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(JOBS),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=ANSWER_BYTES_MAX,
                start_new_session=True,
            )
        started = await self._answer()
        self.version, self.start_s = started["version"], started["seconds"]

    async def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"Spark has ended; see {self.log_path}"}
        if "error" in answer:
            raise DoesNotHold("an answer from Spark", str(answer["error"]))
        return answer

    async def stop(self) -> None:
        """Ends Spark in order."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(END_WAIT_S):
                await self._process.wait()
                while self.members():  # Java ends last, and has no parent that waits for its end
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise DoesNotHold(f"Spark to end within {END_WAIT_S:g} s", f"still there: {self.members()}") from None

    async def abandon(self) -> None:
        """Kills Spark and waits for the end, while the event loop still runs."""
        if self._process is not None:
            self.kill()
            await self._process.wait()

    def members(self) -> list[int]:
        """The living processes of Spark's session: Python, Java, Python workers."""
        if self._process is None:
            return []
        return [pid for pid in _pids() if _session(pid) == self._process.pid]

    def kill(self) -> None:
        """Kills all processes of Spark's session."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        for pid in self.members():  # Python workers lead a group of their own
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _pids() -> list[int]:
    """The ids of all processes; empty on a system without /proc."""
    proc = Path("/proc")
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()] if proc.is_dir() else []


def _session(pid: int) -> int | None:
    """The session id of a living process; None for a dead process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[3])
