"""Names of nodes: one way to write each, and nobody is anybody by accident."""

import pytest

from service_kit.process.endpoints import BadEndpoint
from service_kit.security.node_identity import BROKER, CONTROLLER, Node, NodeNames, cluster_hex, parse_named_node

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
HEX = "e0bea0de74a14fe78c0ad2bef97f3ab3"
TWO, BROKER_101 = Node(CONTROLLER, 2), Node(BROKER, 101)


def test_a_name_is_the_role_the_id_and_the_cluster() -> None:
    """Whichever way the cluster's id is written; one that is no UUID has a name too."""
    names = NodeNames(CLUSTER_ID)
    assert cluster_hex(CLUSTER_ID) == cluster_hex("e0bea0de-74a1-4fe7-8c0a-d2bef97f3ab3") == HEX
    assert names.demanded(TWO) == f"controller-2.{HEX}"
    assert names.demanded(BROKER_101) == f"broker-101.{HEX}"
    for other in ("test-cluster", "x", "4L6g3nShT-eMCtK--X86s", "n" * 255):
        assert len(cluster_hex(other)) == 32
        assert cluster_hex(other) != HEX


@pytest.mark.parametrize(
    ("names", "nodes"),
    [
        ((f"controller-2.{HEX}",), {TWO}),
        ((f"CONTROLLER-2.{HEX.upper()}",), {TWO}),  # DNS names have no case
        (("10.0.0.1", "ctl2.example.org", f"controller-2.{HEX}", f"broker-101.{HEX}"), {TWO, BROKER_101}),
        ((f"controller-02.{HEX}", f"controller-+2.{HEX}", f"controller-.{HEX}", f"controller-2147483648.{HEX}"), set()),
        ((f"controller-2.{HEX}.example.org", f"x.controller-2.{HEX}", f"controller-2{HEX}", "controller-2"), set()),
        (
            (f"bro\u212aer-101.{HEX}", f"controller-2.{HEX}.", f"controller-\uff12.{HEX}"),
            set(),
        ),  # \u212a in lower case is a k
        ((f"controller-2.{'0' * 32}", f"*.{HEX}", f"voter-2.{HEX}", f"operator.{HEX}"), set()),
        ((), set()),
    ],
)
def test_a_certificate_is_of_the_nodes_that_its_names_spell(names: tuple[str, ...], nodes: set[Node]) -> None:
    """Of this cluster, and to the letter: no wildcard, no other cluster, no second way to write a number."""
    assert NodeNames(CLUSTER_ID).nodes_of(names) == nodes


def test_what_is_listed_for_a_node_stands_in_place_of_its_own_name() -> None:
    """An authority that gives other names away can be used; the first one listed is demanded, each of them is taken. Two nodes
    that share one certificate (of their host, say) are both what it says."""
    listed = [
        parse_named_node(text)
        for text in ("controller-2@Ctl2.example.org", "controller-2@old.example.org", "broker-101@ctl2.example.org")
    ]
    names = NodeNames(CLUSTER_ID, listed)
    assert names.demanded(TWO) == "ctl2.example.org"
    assert names.nodes_of(["old.example.org"]) == {TWO}
    assert names.nodes_of(["ctl2.example.org"]) == {TWO, BROKER_101}
    assert names.nodes_of([f"controller-2.{HEX}"]) == frozenset()
    assert names.nodes_of([f"controller-3.{HEX}"]) == {Node(CONTROLLER, 3)}


@pytest.mark.parametrize(
    "text",
    [
        "controller-2",
        "controller-2@",
        "voter-2@c2",
        "controller-02@c2",
        "controller@c2",
        "2@c2",
        "controller-2@*.x",
        "",
    ],
)
def test_an_entry_that_names_nobody_is_refused(text: str) -> None:
    with pytest.raises(BadEndpoint, match="controller-ID@name or broker-ID@name expected"):
        parse_named_node(text)
