"""The check of names of users, clients, resources and addresses. A refusal names the field and the limit."""

import ipaddress
from typing import Final

from metadata_log.format.errors import ErrorCode
from quorum.controller.protocol.topic_rules import Rejected

NAME_BYTES_MAX: Final = 256
"""Maximum size of a name, in bytes of UTF-8. A thousand records with three names each fit into one batch."""
SHOWN_MAX: Final = 60
"""How many characters of a wrong name a refusal shows."""


def bad(text: str) -> Rejected:
    """Returns the refusal of one item: INVALID_REQUEST."""
    return Rejected(ErrorCode.INVALID_REQUEST, text)


def check_name(what: str, name: str, or_else: str = "") -> None:
    """Raises Rejected for an empty, long or unprintable name. `what` is the subject: "the name of the user"."""
    if not name:
        raise bad(f"{what} is empty{or_else}")
    if (
        len(name) > NAME_BYTES_MAX
        or len(name.encode(errors="surrogatepass")) > NAME_BYTES_MAX
        or not name.isprintable()
    ):
        raise bad(f"{what} must have at most {NAME_BYTES_MAX} bytes, all printable")


def check_address(name: str) -> None:
    """Raises Rejected for anything but an IPv4 or IPv6 address in its shortest form: look-ups compare the text."""
    try:
        plain = str(ipaddress.ip_address(name))
    except ValueError:
        raise bad(f"{name[:SHOWN_MAX]!r} is no IPv4 or IPv6 address") from None
    if name != plain:
        raise bad(f"address {name[:SHOWN_MAX]!r} has a shorter form: write {plain!r}")
