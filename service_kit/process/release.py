"""Which release this is, for `--version`: the daemons and `quorumctl` say it in the same words."""

import platform


def release() -> str:
    """The version of the installed package, as pip knows it; `not installed` where the code runs from a bare checkout."""
    from importlib import metadata  # costs more than a whole `quorumctl` command; only this question needs it

    try:
        return metadata.version("metaquorum")
    except metadata.PackageNotFoundError:
        return "not installed"


def release_line() -> str:
    """The release and the Python that runs it, in one line."""
    return f"metaquorum {release()} (Python {platform.python_version()})"
