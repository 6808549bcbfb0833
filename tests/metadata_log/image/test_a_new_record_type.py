"""A new canonical record type is said in four files of `metadata_log`, and nowhere else.

The fifth file is the one in `quorum/controller` that decides to write it. Here a type is added to a copy of the package, as
an author would, and a process of its own lives with it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import metadata_log
from metadata_log.format.records import Partition
from metadata_log.image.delta import REPLAYS
from tests.golden.samples import RECORDS

RECORD = '''\
@record(63)
class Licence(NamedTuple):
    """Who may run what, where; canonical."""

    licence_id: Uuid
    signature: Secret
    directories: tuple[Uuid, ...]


'''

REPLAY = """\
    def _licence(self, record: Licence, offset: Offset) -> None:
        self._put(self._licences, record.licence_id, record)
        self.changed.others = True

"""

ROW = """\
    Licence: Replays(
        MetadataDelta._licence,
        lambda r: (("licence", uuid_text(r.licence_id)),),
        lambda r: b"\\x0b" + by_bytes(r.licence_id),
    ),
"""

IMPORT = "    Licence,\n"
FIELD = "    licences: ShardedMap[Uuid, Licence] = field(default_factory=ShardedMap)\n"
WALK = "        yield from self.licences.values()\n"
EDITS = '    _licences: Edits[Uuid, Licence] = Edits("licences")\n'

BEFORE: dict[str, list[tuple[str, str]]] = {
    "format/records/security.py": [("@record(26)\n", RECORD)],
    "format/records/__init__.py": [
        ("    RemoveAccessControlEntry,\n", IMPORT),
        ('    "MetadataRecord",\n', '    "Licence",\n'),
        ("    | NoOp\n", "    | Licence\n"),
    ],
    "image/metadata_image.py": [
        ("    MetadataRecord,\n", IMPORT),
        ("\n    @property\n    def offset(", FIELD),
        ("\n    def check_invariants(", WALK),
    ],
    "image/delta.py": [
        ("    MetadataRecord,\n", IMPORT),
        ("\n    def replay(", EDITS),
        ("\n\ndef _topic_of_new(", REPLAY),
        ("    NoOp: Replays(", ROW),
    ],
}
"""File -> what is inserted, each before the text that is named first."""

LIFE = """\
from metadata_log.image.changes import Changes
from metadata_log.format.codec import decode_records, encode_record, record_to_json
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.entities import entity_keys, fold, with_order_keys
from metadata_log.format.errors import LogFormatError
from metadata_log.format.ids import uuid_text
from metadata_log.image.metadata_image import EMPTY_IMAGE, Provenance
from metadata_log.format.records import DelegationToken, FeatureLevel, Licence
from metadata_log.image.replay import loading_delta

def replayed(image, records):
    delta = MetadataDelta(image)
    for offset, record in enumerate(records, image.offset):
        delta.replay(record, offset)
    return delta.finish(Provenance(image.offset + len(records), 1, 1)), delta.changed

one, two = (Licence(bytes([n]) * 16, b"seal", (bytes([n]) * 16,)) for n in (1, 2))
token = DelegationToken("t", "o", "r", (), 1, 2, 3)

# on disk and for people: ids are checked and shown as ids, secrets are not shown
assert decode_records(encode_record(one), 1) == [one]
for bad in (one._replace(licence_id=b"short"), one._replace(directories=(b"short",))):
    try:
        decode_records(encode_record(bad), 1)
    except LogFormatError:
        continue
    raise AssertionError(bad)
assert record_to_json(one)["data"] == {
    "licence_id": uuid_text(bytes([1]) * 16), "signature": "[redacted]", "directories": [uuid_text(bytes([1]) * 16)]
}

# in the image, its digest and its snapshot
before, _ = replayed(EMPTY_IMAGE, [token, FeatureLevel("f", 1), two])
after, changed = replayed(before, [one])
after.check_invariants()
canonical = [FeatureLevel("f", 1), token, one, two]
assert [*after.canonical_records()] == canonical
loading = loading_delta()
for place, record in enumerate(canonical):
    loading.replay(record, place)
assert loading.finish(after.provenance) == after

# between two images, whether they were replayed or loaded
assert changed == Changes.between(before, after) == Changes(others=True)
assert not Changes.between(after, after)

# folded by entity, and sorted
keys = [key for key, _ in with_order_keys(canonical)]
assert keys == sorted(set(keys))
[key] = entity_keys(one)
assert [record for _, record in fold(key, [(0, one._replace(signature=b"")), (1, one)])] == [one]
"""


def test_four_files_of_the_package_are_enough(tmp_path: Path) -> None:
    """Codec, tools, digest, snapshots, changes and the fold by entity know the type from there."""
    copy = tmp_path / "metadata_log"
    shutil.copytree(Path(metadata_log.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, insertions in BEFORE.items():
        text = (copy / name).read_text()
        for place, inserted in insertions:
            assert text.count(place) == 1, (name, place)
            text = text.replace(place, inserted + place)
        (copy / name).write_text(text)
    life = tmp_path / "life.py"
    life.write_text(LIFE)

    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, str(life)], env=environment, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr


def test_each_canonical_type_has_a_section_of_its_own() -> None:
    """Else two types' keys would mix. A partition's key is one within its topic's."""
    sections = [
        row.order(record)[:1]
        for record in RECORDS
        if type(record) is not Partition and (row := REPLAYS.get(type(record))) is not None and row.order is not None
    ]
    types = {cls for cls, row in REPLAYS.items() if row.order is not None} - {Partition}
    assert len(types) == len(set(sections))
    assert types <= {type(record) for record in RECORDS}
