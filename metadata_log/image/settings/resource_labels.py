"""The labels of one resource: of a topic with its partitions, or of a broker. Immutable.

The image has one `ResourceLabels` for each resource with labels, and none for the others. Its number and its digest are sums over
its records. So a topic is removed with all its labels in one step, however many of its partitions have labels.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from metadata_log.format.records import WHOLE_RESOURCE, Label
from metadata_log.image.digest import MODULUS, record_hash

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


class ResourceLabels(NamedTuple):
    """Labels by partition, and by key. WHOLE_RESOURCE stands for the topic or broker itself."""

    of: Mapping[int, Mapping[str, str]] = MappingProxyType({})
    """No mapping in it is empty. Read-only."""
    label_count: int = 0
    digest: int = 0
    """The sum of the hashes of all records, in [0, MODULUS)."""

    def get(self, partition: int = WHOLE_RESOURCE) -> Mapping[str, str]:
        return self.of.get(partition, NO_LABELS)

    def records(self, resource_type: int, resource_name: str) -> Iterator[Label]:
        """Return the records of all labels, by partition and key."""
        for partition, labels in sorted(self.of.items()):
            for key in sorted(labels):
                yield Label(resource_type, resource_name, partition, key, labels[key])

    def check(self, resource_type: int, resource_name: str) -> None:
        """Assert that the sums agree with the records."""
        records = [*self.records(resource_type, resource_name)]
        assert self.label_count == len(records) > 0, (resource_name, self.label_count)
        assert self.digest == sum(map(record_hash, records)) % MODULUS, (resource_name, "digest of labels")
        assert all(self.of.values()), (resource_name, "empty labels")
