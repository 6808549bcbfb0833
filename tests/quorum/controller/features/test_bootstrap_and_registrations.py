"""Features, controllers' registrations, and what a configuration may be."""

import random
from dataclasses import replace

import pytest

from metadata_log.format.errors import ErrorCode
from metadata_log.format.records import (
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    Endpoint,
    FeatureLevel,
    FeatureRange,
    RegisterController,
)
from metadata_log.image.delta import MetadataDelta
from metadata_log.image.metadata_image import EMPTY_IMAGE, Provenance
from quorum.controller.controller import Controller
from quorum.controller.protocol.commands import RegisterControllerCommand
from quorum.controller.protocol.config import ControllerConfig
from quorum.controller.protocol.decision import ControllerError
from quorum.controller.protocol.feature_commands import BootstrapFeatures
from quorum.controller.protocol.feature_gate import require_level
from tests.quorum.controller.cluster import Cluster


def test_features_are_finalized_once() -> None:
    """By the first active controller of a cluster; later ones find them."""
    controller = Controller(ControllerConfig(), random.Random(0))
    decision = controller.decide(EMPTY_IMAGE, BootstrapFeatures(), 0)

    assert decision.records == (FeatureLevel("metadata.version", METADATA_VERSION_MAX),)
    assert controller.decide(EMPTY_IMAGE, BootstrapFeatures(1), 0).records == (FeatureLevel("metadata.version", 1),)
    assert Cluster(0).run(BootstrapFeatures()).records == []
    with pytest.raises(ControllerError, match=r"metadata\.version 4 is not supported: 1 to 3 are"):
        controller.decide(EMPTY_IMAGE, BootstrapFeatures(4), 0)


def test_a_controller_registers_and_says_it_only_once() -> None:
    """The same again writes nothing; nonsense is refused with its reason."""
    cluster = Cluster(0)
    endpoints = (Endpoint("CONTROLLER", "c1", 9093),)
    features = (FeatureRange("metadata.version", 1, METADATA_VERSION_MAX),)
    command = RegisterControllerCommand(1, bytes(15) + b"1", endpoints, features)
    assert cluster.run(command).records == [RegisterController(1, command.incarnation_id, endpoints, features)]
    assert cluster.run(command).records == []

    nowhere = RegisterControllerCommand(1, bytes(16), (), features)
    assert cluster.run(nowhere).records == [RegisterController(1, bytes(16), (), features)]
    for broken, says in (
        (replace(command, endpoints=(*endpoints, *endpoints)), "is named twice"),
        (replace(command, incarnation_id=b"half an id"), "the incarnation id must be 16 bytes"),
        (replace(command, controller_id=1 << 40), "a controller id is between 0 and"),
        (replace(command, features=features * 101), "101 features: at most 100"),
    ):
        with pytest.raises(ControllerError, match=says) as refused:
            cluster.run(broken)
        assert refused.value.code is ErrorCode.INVALID_REGISTRATION, "it would be in the log for ever"
    with pytest.raises(ControllerError, match="the node does not know it"):
        cluster.run(RegisterControllerCommand(1, bytes(16), endpoints, ()))


def test_a_configuration_names_all_that_is_wrong_with_it() -> None:
    """At once, not one by one."""
    assert ControllerConfig().problems() == []
    assert ControllerConfig(session_timeout_ms=0, default_partitions=-1, records_max=20_000).problems() == [
        "broker.session.timeout.ms must be at least 1, not 0",
        "num.partitions must be at least 1, not -1",
        "records_max must be between 2 and 11,999, not 20000",
    ]
    assert ControllerConfig(slice_changes_max=9_000).problems() == ["slice_changes_max must be below 5949, not 9000"]
    (beside,) = ControllerConfig(partitions_per_request_max=11_999).problems()
    assert beside == (
        "partitions_per_request_max must be below records_max, which is 11999, not 11999: a topic has a record of its own"
    )


def test_a_decision_asks_for_the_level_before_it_writes() -> None:
    """Below the level the operator reads which level is missing, and what to do."""
    cluster = Cluster(0)
    require_level(cluster.image, 2, "a reassignment")
    cluster.append(FeatureLevel(METADATA_VERSION, 1))
    with pytest.raises(
        ControllerError, match=r"a reassignment needs metadata\.version 2, and the cluster is at level 1"
    ) as e:
        require_level(cluster.image, 2, "a reassignment")
    assert (e.value.code, "quorumctl features upgrade" in e.value.message) == (ErrorCode.UNSUPPORTED_VERSION, True)


def test_a_cluster_with_records_and_no_level_begins_at_the_lowest() -> None:
    """Its brokers may be older: only an operator raises the level."""
    image = Cluster(1).image
    delta = MetadataDelta(image)
    delta.replay(FeatureLevel(METADATA_VERSION, 0), image.offset)
    image = delta.finish(Provenance(image.offset + 1, 1, 0))
    decision = Controller(ControllerConfig(), random.Random(0)).decide(image, BootstrapFeatures(2), 0)
    assert decision.records == (FeatureLevel(METADATA_VERSION, 1),)
