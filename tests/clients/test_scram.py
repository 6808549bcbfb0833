"""SCRAM credentials that a client makes, against the example of RFC 7677."""

import base64
import hashlib
import hmac

import pytest

from clients.scram import ITERATIONS, scram_credential

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SAID = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={NONCE}".encode()
PROOF = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
SIGNATURE = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_the_keys_are_those_of_the_rfc() -> None:
    """The stored key checks the client's proof, and the server key makes the server's signature (RFC 7677, section 3)."""
    made = scram_credential("user", "pencil", "SCRAM_SHA_256", 4_096, SALT).credential
    assert hmac.digest(made.server_key, SAID, "sha256") == SIGNATURE
    signature = hmac.digest(made.stored_key, SAID, "sha256")
    client_key = bytes(proof ^ one for proof, one in zip(PROOF, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == made.stored_key


@pytest.mark.parametrize(("mechanism", "size"), [("SCRAM_SHA_256", 32), ("SCRAM_SHA_512", 64)])
def test_the_same_password_has_another_salt_each_time(mechanism: str, size: int) -> None:
    first, second = [scram_credential("alice", "pencil", mechanism).credential for _ in range(2)]
    assert first.salt != second.salt and first.stored_key != second.stored_key
    assert (len(first.stored_key), len(first.server_key), first.iterations) == (size, size, ITERATIONS)
