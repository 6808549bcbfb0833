"""Notes in a broker's directory about its processes: those that may be registered, and the proof of a clean shutdown.

    1. Process A of broker 101 notes itself, registers, and is killed. Process B finds the note, and names A as its predecessor:
       the controllers need not wait for the end of A's session.
    2. Process B ends with a controlled shutdown, and leaves the proof. Process C takes the proof once, and deletes it.

A note that finds no room on the disk waits in memory (`write` tries again). A process that follows meanwhile waits for the end of
the session of this process.
"""

from typing import Final

from metadata_log.disk.failures import FileTooLarge, is_full, is_unreadable
from metadata_log.disk.files import Directory
from metadata_log.format.ids import Uuid

INCARNATIONS_NAME: Final = "incarnations"
CLEAN_SHUTDOWN_NAME: Final = "clean-shutdown"
_CLEAN_SHUTDOWN_BYTES_MAX: Final = 20
INCARNATIONS_MAX: Final = 8
"""How many processes that died before they were registered are remembered; the oldest are forgotten first."""
_UUID_BYTES: Final = 16


def read_incarnations(directory: Directory) -> tuple[Uuid, ...]:
    """The processes of a broker's directory that may be registered, the newest first; none if the file cannot be read."""
    try:
        data = directory.read(INCARNATIONS_NAME, INCARNATIONS_MAX * _UUID_BYTES)
    except (FileNotFoundError, FileTooLarge):  # too large: no store wrote that
        return ()
    except OSError as e:
        if not is_unreadable(e):
            raise
        return ()  # without its predecessor's name the broker waits until the predecessor's session ends
    whole = len(data) - len(data) % _UUID_BYTES
    return tuple(data[at : at + _UUID_BYTES] for at in range(0, whole, _UUID_BYTES))


def forget_incarnations(directory: Directory) -> None:
    """Lets the next process register without a predecessor: it waits until the session of the last process is over."""
    if directory.exists(INCARNATIONS_NAME):
        directory.remove(INCARNATIONS_NAME)
        directory.flush()


class ProcessNotes:
    """The notes of one directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self.why_full = ""
        """The disk's error while a note waits for room; empty if none does."""
        self._waiting: tuple[Uuid, ...] = ()

    def note_attempt(self, incarnation: Uuid) -> None:
        """Notes a process that is about to register."""
        known = read_incarnations(self._directory)
        if incarnation not in known:
            self._waiting = (incarnation, *known)[:INCARNATIONS_MAX]
            self.write()

    def note_registered(self, incarnation: Uuid) -> None:
        """Notes that this process alone is registered."""
        self._waiting = (incarnation,)
        self.write()

    def write(self) -> None:
        """Writes the note that waits, if there is one. Raises OSError, FlushFailed: the disk has failed."""
        if self._waiting:
            try:
                self._directory.write_atomic(INCARNATIONS_NAME, b"".join(self._waiting))
            except OSError as e:
                if not is_full(e):
                    raise
                self.why_full = str(e)
                return
        self._waiting, self.why_full = (), ""

    def note_clean_shutdown(self, broker_epoch: int) -> None:
        """Leaves the proof. Raises OSError, FlushFailed: the disk has failed, or has no room for the proof."""
        self._directory.write_atomic(CLEAN_SHUTDOWN_NAME, str(broker_epoch).encode())

    def take_clean_shutdown(self) -> int | None:
        """Returns the epoch of the proof, if there is one, and deletes the proof: this process may crash at any time."""
        try:
            data = self._directory.read(CLEAN_SHUTDOWN_NAME, _CLEAN_SHUTDOWN_BYTES_MAX)
        except FileNotFoundError:
            return None
        except FileTooLarge:  # no store wrote that
            data = b""
        except OSError as e:
            if not is_unreadable(e):
                raise
            data = b""
        self._directory.remove(CLEAN_SHUTDOWN_NAME)
        self._directory.flush()
        return int(data) if data.isdigit() else None
