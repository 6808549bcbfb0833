"""The methods of AdminClient about the settings of embedders: definitions of config keys, and labels.

share = admin_pb2.ConfigKeyDefinition(resource_type=TOPIC_RESOURCE, name="acme.share", value_type="decimal", default_value="1")
await client.alter_config_keys([share])
await client.alter_configs([...])        # acme.share is a config of topics now, as retention.ms is
"""

from collections.abc import AsyncIterator, Iterable

from quorum_rpc.v1 import admin_pb2

from clients.calls import Calls


class SettingsCalls(Calls):
    """The calls about definitions of config keys, and about labels."""

    # --- config keys -----------------------------------------------------------------------------------------------

    async def alter_config_keys(
        self,
        definitions: Iterable[admin_pb2.ConfigKeyDefinition] = (),
        removals: Iterable[admin_pb2.ConfigKeyName] = (),
        *,
        validate_only: bool = False,
    ) -> admin_pb2.AlterConfigKeysResponse:
        """Defines config keys, or defines them anew, and removes definitions: all of it, or nothing."""
        request = admin_pb2.AlterConfigKeysRequest(
            definitions=definitions, removals=removals, validate_only=validate_only
        )
        return await self.call(request, admin_pb2.AlterConfigKeysResponse)

    async def describe_config_keys(
        self, page_size: int = 0, page_token: bytes = b""
    ) -> admin_pb2.DescribeConfigKeysResponse:
        """Returns one page of the definitions, by resource type and name."""
        request = admin_pb2.DescribeConfigKeysRequest(page_size=page_size, page_token=page_token)
        return await self.call(request, admin_pb2.DescribeConfigKeysResponse)

    async def config_keys(self, page_size: int = 0) -> AsyncIterator[admin_pb2.ConfigKeyDefinition]:
        """Yields all definitions, by resource type and name. Built-in keys are not among them."""
        request = admin_pb2.DescribeConfigKeysRequest(page_size=page_size)
        async for page in self.pages(request, admin_pb2.DescribeConfigKeysResponse):
            for definition in page.definitions:
                yield definition

    # --- labels ----------------------------------------------------------------------------------------------------

    async def alter_labels(
        self, alterations: Iterable[admin_pb2.LabelAlteration], *, validate_only: bool = False
    ) -> admin_pb2.AlterLabelsResponse:
        """Attaches labels to topics, partitions and brokers, and removes labels: all of it, or nothing."""
        request = admin_pb2.AlterLabelsRequest(alterations=alterations, validate_only=validate_only)
        return await self.call(request, admin_pb2.AlterLabelsResponse)

    async def list_labels(
        self, label: str = "", page_size: int = 0, page_token: bytes = b""
    ) -> admin_pb2.ListLabelsResponse:
        """Returns one page of the topics, partitions and brokers with labels; `label`: a key, or key=value."""
        request = admin_pb2.ListLabelsRequest(label=label, page_size=page_size, page_token=page_token)
        return await self.call(request, admin_pb2.ListLabelsResponse)

    async def labels(self, label: str = "", page_size: int = 0) -> AsyncIterator[admin_pb2.LabelledThing]:
        """Yields the topics, partitions and brokers with labels; `label`: only those with this key, or key=value."""
        request = admin_pb2.ListLabelsRequest(label=label, page_size=page_size)
        async for page in self.pages(request, admin_pb2.ListLabelsResponse):
            for thing in page.things:
                yield thing
