"""A volume whose power can be cut: an ext4 file system in a file, mounted through a loop device. Needs root.

`cut` is ext4's own ioctl for such tests (EXT4_IOC_SHUTDOWN with NOLOGFLUSH, as xfstests uses it): from that moment nothing
more reaches the volume, not even the journal, and every call on it fails with EIO. Bytes that were not synced before are gone
when it is mounted again. Unlike a process killed by signal 9, whose writes the kernel still holds.
"""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path
from typing import Final

VOLUME_BYTES: Final = 96 << 20
_EXT4_IOC_SHUTDOWN: Final = 0x8004587D
_NOLOGFLUSH: Final = 2
_BUSY_S: Final = 10.0
_TOOLS: Final = ("mkfs.ext4", "mount", "umount", "sync")


class VolumeError(Exception):
    """A command failed; the message is what it said."""


class Volume:
    """One file system, mounted at `path`. The image is a sparse file beside it."""

    def __init__(self, path: Path, size: int = VOLUME_BYTES) -> None:
        self.path = path
        self._image = path.with_name(f"{path.name}.ext4")
        path.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(size)
        _command("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()
        with contextlib.suppress(FileNotFoundError):
            (path / "lost+found").rmdir()

    def mount(self) -> None:
        """Mounts the image; ext4 replays its journal."""
        _command("mount", "-o", "loop", str(self._image), str(self.path))

    def sync(self) -> None:
        """All that is there now stays."""
        _command("sync", "-f", str(self.path))

    def cut(self) -> None:
        """The power is gone. See the file's head."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, struct.pack("I", _NOLOGFLUSH))
        finally:
            os.close(fd)

    def fill(self) -> Path:
        """Takes all the room that there is; whoever removes the file that is returned gives it back."""
        filler = self.path / "filler"
        with filler.open("wb", buffering=0) as file:
            for step in (1 << 20, 4_096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(step))
                        os.fsync(file.fileno())
        return filler

    @classmethod
    def under(cls, directory: Path, size: int = VOLUME_BYTES) -> "Volume":
        """A volume mounted in the place of `directory`, with what is in it."""
        moved = directory.with_name(f"{directory.name}.moved")
        directory.rename(moved)
        volume = cls(directory, size)
        shutil.copytree(moved, directory, dirs_exist_ok=True)
        directory.chmod(0o700)
        volume.sync()
        shutil.rmtree(moved)
        return volume

    def unmount(self) -> None:
        """Waits for whoever still has files open there, for a while."""
        deadline_s = time.monotonic() + _BUSY_S
        while True:
            try:
                return _command("umount", str(self.path))
            except VolumeError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.02)

    def remove(self) -> None:
        """Unmounts if need be, and deletes the image."""
        if self.path.is_mount():
            self.unmount()
        self._image.unlink(missing_ok=True)


def why_not(scratch: Path) -> str | None:
    """Why power cannot be cut on this machine; None if it can, and if a cut does what it should: what was synced stays, and
    what was not is gone.
    """
    if os.geteuid() != 0:
        return "this needs root: it mounts file systems on loop devices"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    volume: Volume | None = None
    try:
        volume = Volume(scratch / "trial")
        return _trial(volume)
    except (VolumeError, OSError) as e:
        return f"no file system on a loop device here: {e}"
    finally:
        if volume is not None:
            volume.remove()


def _trial(volume: Volume) -> str | None:
    synced, unsynced = volume.path / "synced", volume.path / "unsynced"
    with synced.open("wb") as file:
        file.write(b"kept")
        file.flush()
        os.fsync(file.fileno())
    unsynced.write_bytes(b"lost")
    volume.cut()
    volume.unmount()
    volume.mount()
    if not synced.exists() or synced.read_bytes() != b"kept":
        return "after a trial cut a file was gone that had been synced"
    if unsynced.exists() and unsynced.read_bytes() == b"lost":
        return "after a trial cut a file was there that had not been synced: nothing could be learned from such cuts"
    return None


def _command(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise VolumeError(f"{' '.join(words)}: {' '.join(done.stderr.split()) or f'exit code {done.returncode}'}")
