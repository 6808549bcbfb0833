"""The door for Spark: Spark looks for installed packages with names like this one, and registers their `DefaultSource` by itself.

So `spark.read.format("metadata_log")` works in a session where metaquorum is installed, without a call. Spark imports all such
packages together, and an error in one package would hide the others. Without Arrow this package has no `DefaultSource`.
"""

from importlib.util import find_spec

if find_spec("pyarrow") is not None:
    from snapshots.offline.datasource import MetadataLogSource as DefaultSource

    __all__ = ["DefaultSource"]
