"""Translates between protobuf and the requests about features. Decides nothing."""

from quorum_rpc.v1 import admin_pb2, common_pb2

from quorum.controller.features.described_features import described_features, registered_controllers
from quorum.controller.protocol.feature_commands import FeatureUpdate, UpdateFeatures, UpdateFeaturesReply, UpgradeType
from quorum.runtime.protocol.requests import ReadView
from quorum.wire.convert.convert_admin import at_most
from quorum.wire.convert.errors import BadMessage
from quorum.wire.convert.parts import to_endpoint


def from_update_features(message: admin_pb2.UpdateFeaturesRequest) -> UpdateFeatures:
    at_most(len(message.updates), "updates")
    return UpdateFeatures(tuple(_update(each) for each in message.updates), message.validate_only)


def _update(message: admin_pb2.FeatureUpdate) -> FeatureUpdate:
    try:
        upgrade_type = UpgradeType(message.upgrade_type)
    except ValueError:
        known = ", ".join(f"{each.name} ({each.value})" for each in UpgradeType)
        text = f"upgrade type {message.upgrade_type}: this release knows {known}"
        raise BadMessage(f"{text}; nothing was done") from None
    return FeatureUpdate(message.name, message.level, upgrade_type)


def to_update_features_response(reply: UpdateFeaturesReply) -> admin_pb2.UpdateFeaturesResponse:
    return admin_pb2.UpdateFeaturesResponse(
        offset=reply.offset,
        results=[admin_pb2.FeatureResult(name=each.name, level=each.level) for each in reply.results],
    )


def describe_features(_: admin_pb2.DescribeFeaturesRequest, view: ReadView) -> admin_pb2.DescribeFeaturesResponse:
    return admin_pb2.DescribeFeaturesResponse(
        as_of_offset=view.as_of_offset,
        features=[
            admin_pb2.DescribedFeature(
                name=each.name,
                supported_min_level=each.min_level,
                supported_max_level=each.max_level,
                finalized_level=each.level,
                in_the_way=each.in_the_way,
            )
            for each in described_features(view.image)
        ],
        controllers=[
            admin_pb2.RegisteredController(
                controller=common_pb2.ReplicaKey(node_id=each.controller_id, directory_id=each.incarnation_id),
                endpoints=[to_endpoint(endpoint) for endpoint in each.endpoints],
                features=[
                    common_pb2.FeatureRange(name=one.name, min_level=one.min_level, max_level=one.max_level)
                    for one in each.features
                ],
            )
            for each in registered_controllers(view.image)
        ],
    )
