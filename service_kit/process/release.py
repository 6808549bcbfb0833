"""The release, for `--version`: the same line for the daemons and `quorumctl`."""

import platform


def release() -> str:
    """The version of the installed package from pip's metadata; `not installed` in a bare checkout."""
    from importlib import metadata  # imported here because the import takes longer than a whole `quorumctl` command

    try:
        return metadata.version("metaquorum")
    except metadata.PackageNotFoundError:
        return "not installed"


def release_line() -> str:
    """The release and the Python that runs it, in one line."""
    return f"metaquorum {release()} (Python {platform.python_version()})"
