"""The jobs as a bundle for `spark-submit`: a program of five lines, and a zip with the modules that it imports.

Executors import the modules from the zip, so a cluster needs no installed metaquorum. A zip cannot carry compiled
packages: NEEDED must be there on the driver's and the executors' machines. The same modules give the same bytes, so a
deployment can compare bundles by their hash.
"""

import io
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.disk.whole_file import write_whole

ROOMS: Final = ("metadata_log", "snapshots")
"""The packages that the jobs import; the house's rules of imports allow them no other."""

CARRIED: Final = ("*.py", "*.css")
"""The files of the packages that the jobs read."""

NEEDED: Final = ("pyarrow", "pandas", "msgpack", "google-crc32c", "click", "rich")

ZIP_NAME: Final = "metaquorum-offline.zip"
PROGRAM_NAME: Final = "quorum_offline.py"
PROGRAM: Final = '''"""The program for spark-submit: it takes the words of `quorum-offline`."""

from snapshots.offline.__main__ import main

if __name__ == "__main__":
    main(prog_name="quorum-offline")
'''

_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
"""The time of all files in the zip, the first that the format knows."""


class Bundle(NamedTuple):
    """The two files of a bundle."""

    program: Path
    modules: Path

    @property
    def command(self) -> str:
        """The words that start a job."""
        return f"spark-submit --master MASTER --py-files {self.modules} {self.program} audit DIRECTORY..."


def write_bundle(out_dir: str) -> Bundle:
    """Write both files into `out_dir`, and create the directory if it does not exist.

    Raises:
        OSError: the files cannot be written.
    """
    directory = Path(out_dir)
    directory.mkdir(parents=True, exist_ok=True)
    bundle = Bundle(directory / PROGRAM_NAME, directory / ZIP_NAME)
    write_whole(bundle.program, PROGRAM.encode())
    write_whole(bundle.modules, _modules())
    return bundle


def _modules() -> bytes:
    whole = io.BytesIO()
    root = Path(__file__).resolve().parents[2]
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as target:
        for room in ROOMS:
            for file in sorted(file for kind in CARRIED for file in (root / room).rglob(kind)):
                _add(target, str(file.relative_to(root)), file.read_bytes())
        release = version("metaquorum")
        about = f"Metadata-Version: 2.1\nName: metaquorum\nVersion: {release}\n"
        _add(target, f"metaquorum-{release}.dist-info/METADATA", about.encode())  # so that `--version` finds it
    return whole.getvalue()


def _add(target: zipfile.ZipFile, name: str, data: bytes) -> None:
    target.writestr(zipfile.ZipInfo(name, _EARLIEST), data, zipfile.ZIP_DEFLATED)
