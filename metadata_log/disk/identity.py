"""Who a data directory belongs to: the file `meta.properties`, written once when the directory is formatted.

    version=1
    cluster.id=4L6g3nShT-eMCtK--X86sw
    node.id=1
    directory.id=p6FqFbzqQuazHwMJYjPrOA
    generation=1
    role=controller
    genesis.chain=8f3a...          (64 hexadecimal digits; left out where it is not known)
    crc32c=0a1b2c3d                (of the lines above as they are written; earlier releases left it out)

A node without it does not start. Otherwise an empty mount point, or another cluster's disk, would join as a voter that has
forgotten its votes, and two majorities could each be sure of themselves (KAFKA-14077). The directory id is new at every
formatting, so that a wiped disk is another voter than the one it replaces (KIP-853). The generation grows when an operator
recovers a cluster whose majority was lost for good: what is left of the older generation must not come back.

Hence the checksum: brokers join a later generation as soon as one controller speaks of it, so a single bit that rots in
`generation` would take them away for good. It is of what the lines say, not of their bytes: comments may be added.
"""

from typing import Final, NamedTuple

import google_crc32c

from metadata_log.disk.files import Directory
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NodeId, Uuid, parse_uuid, uuid_text

IDENTITY_NAME: Final = "meta.properties"
ROLES: Final = ("controller", "broker")

_VERSION: Final = 1
_BYTES_MAX: Final = 16 << 10
_CLUSTER_ID_CHARACTERS_MAX: Final = 255


class Identity(NamedTuple):
    """Whose directory this is."""

    cluster_id: str
    node_id: NodeId
    directory_id: Uuid
    generation: int
    role: str
    """`controller` or `broker`."""
    genesis_chain: bytes = b""
    """The chain before the cluster's first batch; empty where it is not known yet."""


class UnformattedDirectory(Exception):
    """The directory has no `meta.properties`. The message says how to make one."""


class ForeignDirectory(Exception):
    """The directory belongs to another cluster, node or role. The message says which."""


def write_identity(directory: Directory, identity: Identity) -> None:
    """Makes `directory` belong to `identity`, durably."""
    assert identity.role in ROLES, identity
    assert "\n" not in identity.cluster_id, identity
    text = _lines(identity)
    directory.write_atomic(IDENTITY_NAME, f"{text}crc32c={_crc(text)}\n".encode())


def _lines(identity: Identity) -> str:
    properties = {
        "version": _VERSION,
        "cluster.id": identity.cluster_id,
        "node.id": identity.node_id,
        "directory.id": uuid_text(identity.directory_id),
        "generation": identity.generation,
        "role": identity.role,
    }
    if identity.genesis_chain:
        properties["genesis.chain"] = identity.genesis_chain.hex()
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def _crc(text: str) -> str:
    return f"{google_crc32c.value(text.encode()):08x}"


def read_identity(directory: Directory) -> Identity | None:
    """Whose directory this is; None where it was never formatted.

    Raises:
        LogFormatError: the file is there and cannot be read, or was damaged; the message names file and line.
    """
    try:
        data = directory.read(IDENTITY_NAME, _BYTES_MAX)
    except FileNotFoundError:
        return None
    path = f"{directory.path_text}/{IDENTITY_NAME}"
    try:
        return _parse(data.decode())
    except ValueError as e:
        raise LogFormatError(f"{path}: {e}") from None


def _parse(text: str) -> Identity:
    properties: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, equals, value = stripped.partition("=")
        if not equals:
            raise ValueError(f"line {number} is not key=value: {line!r:.60}")
        properties[key.strip()] = value.strip()
    needed = ("version", "cluster.id", "node.id", "directory.id", "generation", "role")
    missing = [key for key in needed if not properties.get(key)]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing")
    if _number(properties, "version") != _VERSION:
        raise ValueError(f"version {properties['version']}; this release reads {_VERSION}")
    if properties["role"] not in ROLES:
        raise ValueError(f"role is {properties['role']!r:.60}; it can be {' or '.join(ROLES)}")
    if len(properties["cluster.id"]) > _CLUSTER_ID_CHARACTERS_MAX:
        raise ValueError(f"cluster.id has more than {_CLUSTER_ID_CHARACTERS_MAX} characters")
    genesis_chain = bytes.fromhex(properties.get("genesis.chain", ""))
    if len(genesis_chain) not in (0, 32):
        raise ValueError(f"genesis.chain has {len(genesis_chain)} bytes; 32 are needed")
    identity = Identity(
        properties["cluster.id"],
        _number(properties, "node.id"),
        parse_uuid(properties["directory.id"]),
        _number(properties, "generation"),
        properties["role"],
        genesis_chain,
    )
    expected = _crc(_lines(identity))
    if properties.get("crc32c", expected) != expected:
        raise ValueError(
            "its checksum does not fit: put it back from a copy, or give this node a new directory. Only if you know that every "
            "other line of it is right, delete the line crc32c"
        )
    return identity


def _number(properties: dict[str, str], key: str) -> int:
    text = properties[key]
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ValueError(f"{key} is {text!r:.60}, not a number")
    return int(text)


def check_identity(
    found: Identity | None,
    *,
    node_id: NodeId,
    role: str,
    cluster_id: str | None = None,
    where: str = "the data directory",
) -> Identity:
    """`found`, if it is that of this node; `cluster_id` is looked at where it is given. `where` is for the message.

    Raises:
        UnformattedDirectory: there is none.
        ForeignDirectory: it is another's.
    """
    if found is None:
        shown = cluster_id or "<the cluster's id>"
        voters = " --initial-controllers <the first voters>" if role == "controller" else ""
        raise UnformattedDirectory(
            f"{where} is not formatted. If this node is new, run "
            f"`quorumctl storage format --cluster-id {shown} --config <its config file>{voters}` first, or, to join a running "
            "cluster, the same with `--from <a controller's address>` alone. "
            f"If it is not new, its disk is missing: do not format, mount the disk"
        )
    differences = [
        f"{name} {theirs}, not {ours}"
        for name, theirs, ours in (
            ("cluster", found.cluster_id, cluster_id if cluster_id is not None else found.cluster_id),
            ("node", found.node_id, node_id),
            ("role", found.role, role),
        )
        if theirs != ours
    ]
    if differences:
        raise ForeignDirectory(
            f"{where} belongs to {'; '.join(differences)}. Point this node at its own directory, or correct its "
            f"configuration; `quorumctl storage info` shows whose a directory is"
        )
    return found
