"""A device with passkeys, in software: what a browser and a security key do together."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from webauthn.helpers import base64url_to_bytes as bytes_of
from webauthn.helpers import bytes_to_base64url as text_of
from webauthn.helpers import encode_cbor

PRESENT, VERIFIED, WITH_KEY = 0x01, 0x04, 0x40
"""Flags of authenticator data (Web Authentication, section 6.1)."""


@dataclass
class Authenticator:
    """Has one passkey, once it was asked to make it; `count` is what it counts."""

    origin: str
    host: str
    flags: int = PRESENT | VERIFIED
    count: int = 0
    counts: bool = True
    credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    user_handle: bytes = b""

    def __post_init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())

    def create(self, options: dict[str, Any]) -> dict[str, Any]:
        """What `navigator.credentials.create` returns."""
        self.user_handle = bytes_of(options["user"]["id"])
        statement = {"fmt": "none", "attStmt": {}, "authData": self._facts(with_key=True)}
        return self._credential(
            clientDataJSON=self._client_data("webauthn.create", options["challenge"]),
            attestationObject=encode_cbor(statement),
        )

    def get(self, options: dict[str, Any]) -> dict[str, Any]:
        """What `navigator.credentials.get` returns."""
        self.count += self.counts
        client_data = self._client_data("webauthn.get", options["challenge"])
        facts = self._facts()
        signed = facts + hashlib.sha256(client_data).digest()
        return self._credential(
            clientDataJSON=client_data,
            authenticatorData=facts,
            signature=self._key.sign(signed, ec.ECDSA(SHA256())),
            userHandle=self.user_handle,
        )

    def _credential(self, **response: bytes) -> dict[str, Any]:
        name = text_of(self.credential_id)
        texts = {key: text_of(value) for key, value in response.items()}
        return {"id": name, "rawId": name, "type": "public-key", "response": texts}

    def _client_data(self, kind: str, challenge: str) -> bytes:
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin}).encode()

    def _facts(self, *, with_key: bool = False) -> bytes:
        flags = self.flags | (WITH_KEY if with_key else 0)
        host = hashlib.sha256(self.host.encode()).digest()
        facts = host + bytes([flags]) + self.count.to_bytes(4, "big")
        if with_key:
            length = len(self.credential_id).to_bytes(2, "big")
            facts += bytes(16) + length + self.credential_id + self._public_key()
        return facts

    def _public_key(self) -> bytes:
        """In COSE's form (RFC 9053, section 7.1.1)."""
        point = self._key.public_key().public_numbers()
        x, y = point.x.to_bytes(32, "big"), point.y.to_bytes(32, "big")
        return encode_cbor({1: 2, 3: -7, -1: 1, -2: x, -3: y})
