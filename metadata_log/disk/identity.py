"""The owner of a data directory: the file `meta.properties`, written once when the directory is formatted.

    version=1
    cluster.id=4L6g3nShT-eMCtK--X86sw
    node.id=1
    directory.id=p6FqFbzqQuazHwMJYjPrOA
    generation=1
    role=controller
    genesis.chain=8f3a...          (64 hexadecimal digits; left out if not known)
    crc32c=0a1b2c3d                (of the lines above as they are written; earlier releases left it out)

*A node without this file does not start* (KAFKA-14077). Example without this rule:
  1. voter 1 votes for voter 2 in epoch 5, and voter 2 leads with the votes 1 and 2;
  2. voter 1 restarts while its disk is not mounted, sees an empty directory, and knows nothing of its vote;
  3. voter 1 votes for voter 3 in epoch 5: two leaders in one epoch.

*The directory id is new at every formatting*, so a voter with an erased disk is not mistaken for the voter that it
replaces (KIP-853).

*The generation* grows when an operator recovers a cluster that lost its majority for good. Nodes of the older
generation must not take part again.

*The checksum* protects the generation above all: a broker joins a later generation as soon as one controller names it,
so one wrong bit in `generation` would separate a node from its cluster for good. The checksum covers the values, not
the bytes of the file, so comments may be added.
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
    """The owner of a directory."""

    cluster_id: str
    node_id: NodeId
    directory_id: Uuid
    generation: int
    role: str
    """`controller` or `broker`."""
    genesis_chain: bytes = b""
    """The chain before the cluster's first batch; empty if not known yet."""


class UnformattedDirectory(Exception):
    """The directory has no `meta.properties`. The message says how to make one."""


class ForeignDirectory(Exception):
    """The directory belongs to another cluster, node or role. The message says which."""


def write_identity(directory: Directory, identity: Identity) -> None:
    """Make `identity` the owner of `directory`, durably."""
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
    """Return the owner of `directory`; None if the directory was never formatted.

    Raises:
        LogFormatError: the file is damaged or cannot be parsed; the message names file and line.
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
            "the checksum does not match the values: restore the file from a copy, or give this node a new directory. Only if "
            "you know that every other line is right, delete the line crc32c"
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
    """Return `found` if it is the identity of this node. `cluster_id` is compared if given; `where` is for the message.

    Raises:
        UnformattedDirectory: the directory has no identity.
        ForeignDirectory: the directory belongs to another cluster, node or role.
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
