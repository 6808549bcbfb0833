"""The TLS part of a daemon's configuration, the same for controllers and brokers.

    tls.certificate.chain: /etc/metaquorum/controller-1.pem
    tls.private.key: /etc/metaquorum/controller-1.key
    tls.certificate.authority: /etc/metaquorum/ca.pem
    tls.node.names: [broker-101@b101.example.org]
    admin.principals: ["CN=alice"]

`tls.node.names` is needed only for certificates without the names of `node_identity`. Without `admin.principals` every
certificate of the authority is an operator's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from service_kit.process.config import Config
from service_kit.security.node_identity import NamedNode, parse_named_node
from service_kit.security.tls import TlsFiles


@dataclass(frozen=True, slots=True)
class Access:
    """The certificates that the configuration names."""

    node_names: tuple[NamedNode, ...] = ()
    """`tls.node.names`"""
    admin_principals: frozenset[str] = frozenset()
    """`admin.principals`; empty: every certificate of the authority is an operator's."""

    entity_principals: frozenset[str] = frozenset()
    """`entities.principals`; empty: the operators."""


NOTHING_LISTED: Final = Access()


def _named_node(value: Any) -> Any:
    return parse_named_node(value) if isinstance(value, str) else value


class TlsSection(BaseModel):
    """`tls.*`: three PEM files, all or none."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    certificate_chain: Path | None = None
    """PEM file of this node's certificate, and of the certificates up to the authority."""
    private_key: Path | None = None
    """PEM file of the certificate's private key."""
    certificate_authority: Path | None = None
    """PEM file of the authority that signs the certificates of nodes and operators."""
    node_names: tuple[Annotated[NamedNode, BeforeValidator(_named_node)], ...] = ()
    """DNS names that nodes have in place of their usual ones, such as `controller-2@ctl2.example.org`."""

    @model_validator(mode="after")
    def _all_or_none(self) -> "TlsSection":
        given = [self.certificate_chain, self.private_key, self.certificate_authority]
        if any(given) and not all(given):
            raise ValueError("tls.certificate.chain, tls.private.key and tls.certificate.authority belong together")
        if self.node_names and not all(given):
            raise ValueError("tls.node.names needs the three tls files: without them there are no certificates")
        owners: dict[tuple[str, str], NamedNode] = {}
        for each in self.node_names:
            other = owners.setdefault((each.node.role, each.name), each)
            if other.node != each.node:
                # A controller and a broker of one host may share a certificate, two controllers may not.
                raise ValueError(
                    f"tls.node.names gives the name {each.name} to {other.node} and to {each.node}: each could act as the other"
                )
        return self


class SecureConfig(Config):
    """Base of the configuration of a daemon that listens, with or without TLS."""

    tls: TlsSection = TlsSection()
    admin_principals: tuple[str, ...] = ()
    """Subjects of the operators' certificates, such as `CN=alice`; empty: every certificate of the authority is an operator's."""
    entities_principals: tuple[str, ...] = ()
    """Subjects of the certificates that may use entities and sessions, besides `admin.principals`; empty: the operators only."""
    allow_insecure_remote: bool = False
    """Allows to listen on other addresses than loopback without TLS."""

    @property
    def tls_files(self) -> TlsFiles | None:
        """The certificates; None if this cluster does not use TLS."""
        tls = self.tls
        if tls.certificate_chain is None or tls.private_key is None or tls.certificate_authority is None:
            return None
        return TlsFiles(tls.certificate_chain, tls.private_key, tls.certificate_authority)

    @property
    def access(self) -> Access:
        """The certificates that the configuration names."""
        return Access(self.tls.node_names, frozenset(self.admin_principals), frozenset(self.entities_principals))

    def tls_problems(self) -> Iterator[tuple[str, str]]:
        """The keys that contradict each other, each with a text."""
        if self.admin_principals and self.tls_files is None:
            yield (
                "admin.principals",
                "needs the three tls files: without certificates an operator cannot be told from others",
            )
        if self.entities_principals and self.tls_files is None:
            yield (
                "entities.principals",
                "needs the three tls files: without certificates an embedder cannot be told from others",
            )
