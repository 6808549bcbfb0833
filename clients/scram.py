"""Makes SCRAM credentials from passwords (RFC 5802, RFC 7677), so that no password leaves the client.

    salted password = PBKDF2(password, salt, iterations)
    client key = HMAC(salted password, "Client Key")      stored key = hash(client key)
    server key = HMAC(salted password, "Server Key")

Example. An operator gives alice the password `pencil`.
    1. The client draws a salt, and makes the stored key and the server key. Only these, the salt and the iterations are sent.
    2. A broker later checks alice's login by the stored key, and proves by the server key that it knows her credential.
"""

import hashlib
import hmac
import os
from typing import Final

from quorum_rpc.v1 import admin_pb2

ITERATIONS: Final = 8_192
"""How many iterations a credential has by default. Controllers take 4,096 to 16,384."""
_SALT_BYTES: Final = 16
_HASHES: Final = {"SCRAM_SHA_256": "sha256", "SCRAM_SHA_512": "sha512"}


def scram_credential(
    user: str, password: str, mechanism: str = "SCRAM_SHA_512", iterations: int = ITERATIONS, salt: bytes = b""
) -> admin_pb2.ScramAlteration:
    """Returns the alteration that sets a user's password. The mechanism is SCRAM_SHA_256 or SCRAM_SHA_512; no salt: a new one."""
    name, salt = _HASHES[mechanism], salt or os.urandom(_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    return admin_pb2.ScramAlteration(
        user=user,
        mechanism=mechanism,
        credential=admin_pb2.ScramCredential(
            iterations=iterations,
            salt=salt,
            stored_key=hashlib.new(name, client_key).digest(),
            server_key=hmac.digest(salted, b"Server Key", name),
        ),
    )
