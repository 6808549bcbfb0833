"""Reads a file that an operator has written: UTF-8 of a bounded size."""

from pathlib import Path


def read_text(path: Path, bytes_max: int) -> str:
    """Returns the content of the file.

    Raises:
        ValueError: the file is too large, or is not UTF-8.
    """
    with path.open("rb") as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise ValueError(f"larger than {bytes_max >> 20} MiB")
    return data.decode("utf-8")
