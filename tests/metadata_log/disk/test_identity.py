"""The owner of a directory."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.disk.identity import (
    ForeignDirectory,
    Identity,
    UnformattedDirectory,
    check_identity,
    read_identity,
    write_identity,
)
from metadata_log.format.errors import LogFormatError
from tests.sim.world.disk import MemoryDirectory

MINE = Identity("cluster-1", 3, bytes(range(16)), 1, "controller", bytes(range(32)))


def test_an_identity_reads_back() -> None:
    for identity in (MINE, MINE._replace(role="broker", genesis_chain=b"")):
        directory = MemoryDirectory()
        write_identity(directory, identity)
        assert read_identity(directory) == identity


def test_a_directory_that_was_never_formatted_has_none() -> None:
    assert read_identity(MemoryDirectory()) is None


def test_a_flipped_bit_makes_nobody_else_of_it() -> None:
    """Brokers join any later generation that a controller names. A wrong bit in `generation` would take them away for
    good.
    """
    directory = MemoryDirectory()
    write_identity(directory, MINE)
    refused = 0
    for position in range(directory.size("meta.properties")):
        for bit in range(8):
            directory.flip_bit("meta.properties", position, bit)
            try:
                assert read_identity(directory) == MINE, (position, bit)
            except LogFormatError:
                refused += 1
            directory.flip_bit("meta.properties", position, bit)
    assert refused > 8 * 100


def test_a_changed_value_is_refused_with_what_to_do() -> None:
    directory = MemoryDirectory()
    write_identity(directory, MINE)
    text = directory.read("meta.properties", 1000)
    directory.write_atomic("meta.properties", text.replace(b"generation=1\n", b"generation=5\n"))
    with pytest.raises(LogFormatError, match=r"/memory/meta.properties: the checksum .* restore the file from a copy"):
        read_identity(directory)


def test_a_file_of_an_earlier_release_has_no_checksum() -> None:
    directory = MemoryDirectory()
    write_identity(directory, MINE)
    lines = directory.read("meta.properties", 1000).splitlines(keepends=True)
    assert lines[-1].startswith(b"crc32c=")
    directory.write_atomic("meta.properties", b"".join(lines[:-1]))
    assert read_identity(directory) == MINE


def test_the_file_is_for_people_too() -> None:
    directory = MemoryDirectory()
    write_identity(directory, MINE)
    directory.write_atomic(
        "meta.properties", b"# a comment\n\n" + directory.read("meta.properties", 1000) + b"more = x\n"
    )

    assert b"cluster.id=cluster-1\nnode.id=3\n" in directory.read("meta.properties", 1000)
    assert read_identity(directory) == MINE


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("node.id=3", "node.id=three", "node.id is 'three', not a number"),
        ("node.id=3\n", "", "node.id missing"),
        ("version=1", "version=2", "version 2; this release reads 1"),
        ("role=controller", "role=king", "role is 'king'"),
        ("directory.id=AAEC", "directory.id=", "not an id"),
        ("generation=1", "generation", "line 5 is not key=value"),
        ("genesis.chain=00", "genesis.chain=", "31 bytes"),
        ("genesis.chain=00", "genesis.chain=zz", "hex"),
        ("cluster-1", "x" * 300, "more than 255"),
        ("cluster-1", "x" * 20_000, "more than the"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(old: str, new: str, said: str) -> None:
    directory = MemoryDirectory()
    write_identity(directory, MINE)
    text = directory.read("meta.properties", 1000).decode()
    assert old in text
    directory.write_atomic("meta.properties", text.replace(old, new).encode())

    with pytest.raises(LogFormatError, match=said) as e:
        read_identity(directory)
    assert "/memory/meta.properties" in str(e.value)


@settings(derandomize=True)
@given(st.binary(max_size=200))
def test_any_bytes_are_an_identity_or_a_format_error(data: bytes) -> None:
    directory = MemoryDirectory()
    directory.write_atomic("meta.properties", data)
    with pytest.raises(LogFormatError):
        read_identity(directory)


def test_my_own_directory_is_mine() -> None:
    assert check_identity(MINE, node_id=3, role="controller") == MINE
    assert check_identity(MINE, node_id=3, role="controller", cluster_id="cluster-1") == MINE


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"node_id": 4}, "node 3, not 4"),
        ({"role": "broker"}, "role controller, not broker"),
        ({"cluster_id": "cluster-2"}, "cluster cluster-1, not cluster-2"),
        ({"cluster_id": "c", "node_id": 9}, "cluster cluster-1, not c; node 3, not 9"),
    ],
)
def test_another_s_directory_is_refused_with_the_difference(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ForeignDirectory, match=said):
        check_identity(MINE, **{"node_id": 3, "role": "controller", **asked})


def test_an_unformatted_directory_is_refused_with_what_to_do() -> None:
    with pytest.raises(UnformattedDirectory, match="quorumctl storage format --cluster-id c1 --config"):
        check_identity(None, node_id=3, role="broker", cluster_id="c1", where="/var/lib/x")
