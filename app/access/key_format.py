"""The form of API keys: `sluice_`, 256 random bits and a checksum, in letters and digits.

The prefix and the checksum let scanners of source code find keys that were published by mistake,
without asking the server (as GitHub's tokens do, which have the same form).
"""

from __future__ import annotations

import hashlib
import secrets
import string
from zlib import crc32

PREFIX = "sluice_"

SECRET_BYTES = 32

HINT_CHARACTERS = len(PREFIX) + 4
"""As much of a key is shown in lists."""

_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase

_SECRET_CHARACTERS = 43
"""62 to this power is above 2 to the power of 256."""

_CHECKSUM_CHARACTERS = 6


def new_key() -> str:
    """A new random key."""
    secret = _in_base_62(secrets.randbits(8 * SECRET_BYTES), _SECRET_CHARACTERS)
    return f"{PREFIX}{secret}{_checksum(secret)}"


def is_key(text: str) -> bool:
    """Whether `text` has the form of a key and the right checksum; the server may not know it."""
    secret, checksum = text[len(PREFIX) : -_CHECKSUM_CHARACTERS], text[-_CHECKSUM_CHARACTERS:]
    is_long_enough = len(secret) == _SECRET_CHARACTERS and text.isascii()
    return text.startswith(PREFIX) and is_long_enough and checksum == _checksum(secret)


def digest_of(secret: str) -> str:
    """What is stored of a key, or of any other random secret: its SHA-256 in hexadecimal.

    A slow hash would protect a guessable password; 256 random bits need none.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def _checksum(secret: str) -> str:
    return _in_base_62(crc32(secret.encode()), _CHECKSUM_CHARACTERS)


def _in_base_62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
