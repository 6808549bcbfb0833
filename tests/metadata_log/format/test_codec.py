"""Records to bytes and back."""

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.format import records as r
from metadata_log.format.batch import encode
from metadata_log.format.codec import (
    UnknownRecord,
    decode_batch,
    decode_records,
    encode_record,
    encode_records,
    record_to_json,
)
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import NO_LEADER, uuid_text
from tests.golden.samples import HASH, ID_A, ID_B, RECORDS

uuids = st.binary(min_size=16, max_size=16)
int64 = st.integers(-(2**63), 2**64 - 1)
ints = st.tuples() | st.lists(int64, max_size=4).map(tuple)
texts = st.text(max_size=20)


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=3).map(tuple)


endpoints = some(st.builds(r.Endpoint, texts, texts, int64))
features = some(st.builds(r.FeatureRange, texts, int64, int64))
optional_ints = st.none() | ints
owners = st.none() | st.builds(r.Owner, st.none() | uuids, st.none() | int64, int64)
any_record = st.one_of(
    st.builds(r.RegisterBroker, int64, uuids, endpoints, features, st.none() | texts, st.booleans(), st.booleans(),
              some(uuids), int64, texts, texts, int64),
    st.builds(r.BrokerRegistrationChange, int64, int64, st.none() | st.booleans(), st.none() | st.booleans(),
              st.none() | some(uuids), texts, int64),
    st.builds(r.Partition, uuids, int64, ints, ints, ints, ints, int64, int64, int64, int64, some(uuids), ints, ints),
    st.builds(r.PartitionChange, uuids, int64, optional_ints, st.none() | int64, optional_ints, optional_ints,
              optional_ints, st.none() | int64, st.none() | some(uuids), optional_ints, optional_ints),
    st.builds(r.ClientQuota, some(st.builds(r.QuotaEntity, texts, st.none() | texts)), texts,
              st.none() | st.floats(allow_nan=False)),
    st.builds(r.Config, int64, texts, texts, st.none() | texts),
    st.builds(r.UserScramCredential, texts, int64, st.binary(), st.binary(), st.binary(), int64),
    st.builds(r.Entity, texts, texts, st.binary(), owners, int64, int64),
    st.builds(r.ClientSession, uuids, texts, texts, int64, int64),
    st.builds(r.Voters, some(st.builds(r.Voter, int64, uuids, endpoints, int64, int64))),
)  # fmt: skip


@settings(derandomize=True, max_examples=60)
@given(st.lists(any_record, max_size=5))
def test_what_is_encoded_decodes_to_the_same_and_encodes_to_the_same_bytes(many: list[r.Record]) -> None:
    payload = encode_records(many)

    decoded = decode_records(payload, len(many))

    assert decoded == many
    assert [type(each) for each in decoded] == [type(each) for each in many]
    assert encode_records(decoded) == payload  # type: ignore[arg-type]  # none of them is unknown


def test_nested_parts_come_back_as_what_they_were() -> None:
    """MessagePack knows only arrays: the NamedTuples inside are rebuilt, with their later fields' defaults."""
    voter = r.Voter(1, ID_A, (r.Endpoint("CONTROLLER", "h", 1),))
    (decoded,) = decode_records(encode_record(r.Voters((voter,))), 1)

    assert isinstance(decoded, r.Voters)
    assert isinstance(decoded.voters[0], r.Voter)
    assert isinstance(decoded.voters[0].endpoints[0], r.Endpoint)


def test_a_single_nested_part_comes_back_as_what_it_was() -> None:
    """An owner, and no owner."""
    for owner in (r.Owner(ID_A, None, 40), r.Owner(None, 7, 30), None):
        (decoded,) = decode_records(encode_record(r.Entity("k", "n", b"", owner)), 1)
        assert isinstance(decoded, r.Entity)
        assert (decoded.owner, type(decoded.owner)) == (owner, type(owner))
    as_json = record_to_json(r.Entity("k", "n", b"\x01", r.Owner(ID_A, None, 40)))
    owner_shown = {"session_id": uuid_text(ID_A), "broker_id": None, "epoch": 40}
    assert as_json["data"] == {
        "kind": "k", "name": "n", "value": "01", "owner": owner_shown, "created": -1, "version": -1
    }  # fmt: skip


def test_fields_that_old_bytes_do_not_have_take_their_defaults() -> None:
    old = msgpack.packb([3, 0, ID_A, 0, [1], [1], [], [], 1, 0, 0, 0])

    assert decode_records(old, 1) == [r.Partition(ID_A, 0, (1,), (1,), (), (), 1, 0, 0, 0)]


def test_defaults_at_the_end_are_not_written() -> None:
    """So a field that is appended later changes no record that does not use it, nor any digest of one."""
    assert msgpack.unpackb(encode_record(r.PartitionChange(ID_A, 7, leader=2))) == [5, 0, ID_A, 7, None, 2]
    assert msgpack.unpackb(encode_record(r.NoOp())) == [20, 0]


@pytest.mark.parametrize("array", [[500, 0, "new", [1, 2]], [2, 1, "name", ID_A, "a field of version 1"], [63, 9]])
def test_what_comes_from_the_future_is_unknown_and_not_an_error(array: list[Any]) -> None:
    (decoded,) = decode_records(msgpack.packb(array), 1)

    assert isinstance(decoded, UnknownRecord)
    assert (decoded.type_number, decoded.version) == (array[0], array[1])
    assert record_to_json(decoded)["type"] == f"Unknown({array[0]})"


BAD = {
    "not an array": 7,
    "a map": {},
    "too short for type and version": [2],
    "no fields": [2, 0],
    "too few fields": [2, 0, "name"],
    "too many fields": [2, 0, "name", ID_A, 1],
    "type is text": ["2", 0, "name", ID_A],
    "type is a bool": [True, 0, 1, 2],
    "type is negative": [-2, 0],
    "version is negative": [2, -1, "name", ID_A],
    "name is bytes": [2, 0, b"name", ID_A],
    "name is null": [2, 0, None, ID_A],
    "id is text": [2, 0, "name", "x" * 16],
    "id is short": [2, 0, "name", b"short"],
    "id is empty": [2, 0, "name", b""],
    "bool for int": [12, 0, "feature", True],
    "int for bool": [0, 0, 1, ID_A, [], [], None, 1, False, []],
    "int for float": [14, 0, [], "key", 5],
    "bool in a list of ints": [5, 0, ID_A, 1, [1, True]],
    "list in a list of ints": [5, 0, ID_A, 1, [[1]]],
    "short id in a list of ids": [0, 0, 1, ID_A, [], [], None, True, False, [ID_B, b"x"]],
    "endpoint is a number": [27, 0, 1, ID_A, [7], []],
    "endpoint is short": [27, 0, 1, ID_A, [["l", "h"]], []],
    "endpoint is long": [27, 0, 1, ID_A, [["l", "h", 1, 2]], []],
    "port is text": [27, 0, 1, ID_A, [["l", "h", "1"]], []],
    "owner is a number": [42, 0, "k", "n", b"", 7],
    "owner is empty": [42, 0, "k", "n", b"", []],
    "owner is short": [42, 0, "k", "n", b"", [ID_A, None]],
    "owner is long": [42, 0, "k", "n", b"", [ID_A, None, 7, 8]],
    "owner has a short id": [42, 0, "k", "n", b"", [b"short", None, 7]],
    "owner has an empty id": [42, 0, "k", "n", b"", [b"", None, 7]],
    "epoch of the owner is text": [42, 0, "k", "n", b"", [ID_A, None, "7"]],
    "a map for a list": [5, 0, ID_A, 1, {}],
    "an extension type": [2, 0, "name", msgpack.ExtType(1, b"x")],
}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD.keys())
def test_a_record_of_a_wrong_shape_is_refused(value: object) -> None:
    with pytest.raises(LogFormatError):
        decode_records(msgpack.packb(value), 1)


def test_the_number_of_records_must_be_right() -> None:
    payload = encode_records([r.NoOp(), r.NoOp()])
    for count in (0, 1, 3):
        with pytest.raises(LogFormatError):
            decode_records(payload, count)


@pytest.mark.parametrize(
    "payload",
    [
        b"\xdd\xff\xff\xff\xff",  # an array of 4 billion
        b"\x93\x02\x00\xdb\xff\xff\xff\xff",  # text of 4 GB
        b"\x93\x02\x00\xc6\xff\xff\xff\xff",  # bytes of 4 GB
        b"\x91" * 100_000,  # arrays in arrays
        b"\x93\x02\x00\xa2\xff\xff",  # text that is not UTF-8
        b"\xc1",  # a byte that MessagePack never uses
        b"",
    ],
)
def test_lengths_that_lie_are_refused_before_anything_is_made_of_them(payload: bytes) -> None:
    with pytest.raises(LogFormatError):
        decode_records(payload, 1)


@settings(derandomize=True, max_examples=300)
@given(st.integers(0, len(RECORDS) - 1), st.integers(0, 10_000), st.integers(0, 255), st.booleans())
def test_a_changed_byte_gives_records_or_a_format_error(index: int, place: int, byte: int, is_cut: bool) -> None:
    """Mutation from real bytes; nothing but LogFormatError may come out."""
    data = bytearray(encode_record(RECORDS[index]))
    place %= len(data)
    data[place] = byte
    try:
        decoded = decode_records(bytes(data[:place] if is_cut else data), 1)
    except LogFormatError:
        return
    assert len(decoded) == 1


# --- partitions, most of which are in a state that was seen before ---------------------------------------------------

A_PARTITION = r.Partition(ID_A, 7, (1, 2, 3), (1, 2), (), (), 1, 0, 1, 1, (ID_A, ID_B, ID_A))


def read(payload: bytes, before: bytes = b"") -> object:
    """What one record's bytes are taken for, to the types of its fields; behind `before`, which is another record."""
    count = 2 if before else 1
    try:
        record = decode_records(before + payload, count)[-1]
    except LogFormatError as e:
        return str(e).replace(f"record {count - 1} ", "record ").replace(f"the {count} records", "the records")
    fields = record.fields if isinstance(record, UnknownRecord) else tuple(record)
    return type(record), fields, tuple(map(type, fields))


def read_warm_and_cold(payload: bytes, like: r.Partition = A_PARTITION) -> tuple[object, object]:
    """Behind a partition in the same state, and alone."""
    return read(payload, encode_record(like._replace(topic_id=ID_B, partition=90))), read(payload)


@pytest.mark.parametrize("number", [0, 127, 128, 255, 256, 65_535, 65_536, 2**31 - 1, 2**32, 2**63, -1, -129])
def test_a_partition_of_any_number_is_the_same_if_its_state_was_seen_before(number: int) -> None:
    partition = A_PARTITION._replace(partition=number)
    warm, cold = read_warm_and_cold(encode_record(partition))
    assert warm == cold == (r.Partition, tuple(partition), tuple(map(type, partition)))


@settings(derandomize=True, max_examples=1_000)
@given(st.sampled_from([7, 200, 300, 70_000]), st.integers(0, 100), st.integers(0, 255), st.booleans())
def test_no_changed_byte_hides_behind_a_state_that_was_seen_before(
    number: int, place: int, byte: int, is_cut: bool
) -> None:
    payload = bytearray(encode_record(A_PARTITION._replace(partition=number)))
    place %= len(payload)
    payload[place] = byte
    warm, cold = read_warm_and_cold(bytes(payload[: place + 1] if is_cut else payload))
    assert warm == cold


def test_bytes_that_only_mean_the_same_are_looked_at() -> None:
    """A truth value in a number's place equals 1; a map may have an array's bytes behind its head; a number may be a float."""
    good = encode_record(A_PARTITION)
    truth = good.replace(msgpack.packb([1, 0, 1, 1])[1:], msgpack.packb([True, 0, 1, 1])[1:])
    short = encode_record(A_PARTITION._replace(directories=()))
    items = short[0] & 0xF
    as_map = bytes([0x80 | items // 2]) + short[1:]
    as_float = good[:21] + msgpack.packb(7.0) + good[22:]
    assert truth != good and items % 2 == 0
    for wrong in (truth, as_map, as_float):
        warm, cold = read_warm_and_cold(wrong)
        assert warm == cold and isinstance(cold, str)
    warm, cold = read_warm_and_cold(as_map, A_PARTITION._replace(directories=()))
    assert warm == cold and isinstance(cold, str)


@pytest.mark.parametrize("states", [1, 6, 63, 64, 65, 200])
def test_many_partitions_in_one_batch_are_what_they_were(states: int) -> None:
    """Few states, as many as are looked out for, and more; other records in between, and lengths that change."""
    many: list[r.Record] = []
    for i in range(400):
        state = i * 7 % states
        many.append(
            A_PARTITION._replace(partition=i * 50, leader_epoch=state, replicas=(1, 2, 300) if state % 3 else (1, 2))
        )
        if i % 11 == 0:
            many.append(r.NoOp())
    decoded = decode_records(encode_records(many), len(many))
    assert decoded == many
    assert [tuple(map(type, record)) for record in decoded] == [tuple(map(type, record)) for record in many]


def test_arrays_in_arrays_in_arrays_are_refused() -> None:
    """A thousand deep: the interpreter gives up before the text of the error is made."""
    replicas, others = b"\x91", b"\1" + b"\x91\1\x90\x90\1\0\1\1"
    for deep in (50, 1_015, 1_020, 5_000):
        with pytest.raises(LogFormatError):
            decode_records(bytes([0x9C, 3, 0, 0xC4, 16]) + bytes(17) + replicas * deep + others, 1)


def test_a_record_with_a_wrong_type_of_field_does_not_get_into_the_log() -> None:
    with pytest.raises(LogFormatError):
        encode_record(r.Topic("name", None))  # type: ignore[arg-type]
    with pytest.raises(LogFormatError):
        encode_record(r.ClientQuota((), "key", 5))  # an int would come back as another value than 5.0 is hashed as


def test_control_and_data_records_do_not_mix() -> None:
    for records, is_control in (([r.NoOp()], True), ([r.KRaftVersion(1)], False)):
        batch = encode(
            encode_records(records), base_offset=0, epoch=1, record_count=1, first_timestamp_ms=0, last_timestamp_ms=0,
            is_control=is_control, previous_chain=HASH,
        )  # fmt: skip
        with pytest.raises(LogFormatError):
            decode_batch(batch)


def test_json_shows_ids_as_text_and_no_leader_as_null() -> None:
    shown = record_to_json(r.PartitionChange(ID_A, 3, leader=NO_LEADER, directories=(ID_B,)))

    assert (shown["type"], shown["version"]) == ("PartitionChange", 0)
    data = shown["data"]
    assert isinstance(data, dict)
    assert (data["topic_id"], data["leader"], data["directories"]) == (uuid_text(ID_A), None, [uuid_text(ID_B)])


def test_json_of_a_voter_set_is_nested() -> None:
    shown = record_to_json(r.Voters((r.Voter(1, ID_A, (r.Endpoint("C", "h", 2),)),)))

    assert shown["data"] == {
        "voters": [
            {
                "node_id": 1,
                "directory_id": uuid_text(ID_A),
                "endpoints": [{"listener": "C", "host": "h", "port": 2}],
                "kraft_version_min": 0,
                "kraft_version_max": 1,
            }
        ]
    }


def test_json_shows_no_secret() -> None:
    credential = r.UserScramCredential("alice", 1, b"salt-secret", b"stored-secret", b"server-secret", 4096)
    shown = str(record_to_json(credential))

    assert "secret" not in shown
    assert b"secret".hex() not in shown
    assert "alice" in shown
