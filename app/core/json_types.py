"""Types of members of the API's JSON, with what its description says about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from app.core.access import MEMBERS
from app.core.policy import MAX_FILENAME_CHARACTERS, MAX_KEY_CHARACTERS


@dataclass(frozen=True, slots=True, eq=False)
class Keywords:
    """Keywords of JSON Schema for the description of the API.

    A body is not checked against them: its subject does that, with its own errors.
    """

    schema: Mapping[str, Any]


def keywords(**schema: Any) -> Keywords:
    """Keywords for an annotated type, such as `minimum=0`."""
    return Keywords(schema)


Id = Annotated[str, keywords(pattern="^[0-9a-f]{32}$", description="Made by the server.")]
Name = Annotated[str, keywords(minLength=1, maxLength=100, description="One line.")]
MemberRole = Annotated[str, keywords(enum=[*MEMBERS])]
Count = Annotated[int, keywords(format="int64", minimum=0)]
Positive = Annotated[int, keywords(format="int64", minimum=1)]
Seconds = Annotated[float, keywords(minimum=0)]
Fraction = Annotated[float, keywords(minimum=0, maximum=1)]
Instant = Annotated[str, keywords(format="date-time")]
Url = Annotated[str, keywords(format="uri")]

Expiry = (
    Instant | Annotated[float, keywords(exclusiveMinimum=0, description="Seconds from now.")] | None
)

Filename = Annotated[
    str,
    keywords(
        maxLength=MAX_FILENAME_CHARACTERS,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*$",
        description="May have folders in it. Stored in Unicode's NFC, without steps to parent "
        "folders.",
    ),
]
Fingerprint = Annotated[
    str,
    keywords(
        minLength=1,
        maxLength=MAX_KEY_CHARACTERS,
        pattern=r"^[\p{L}\p{M}\p{N}\p{P}\p{S} ]+$",
        description="The client's name for the file's content.",
    ),
]

ClientKey = Annotated[
    str,
    keywords(
        pattern=f"^[A-Za-z0-9._:-]{{1,{MAX_KEY_CHARACTERS}}}$",
        description="The client's name for the upload, or the id of one that was created.",
    ),
]
FIELD_NAMES = {"minLength": 1, "pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"}
"""Names of the fields of forms."""

Sha256 = Annotated[str, keywords(pattern="^[0-9a-f]{64}$")]
Crc32c = Annotated[
    str,
    keywords(
        pattern="^[A-Za-z0-9+/]{5}[AQgw]==$",
        description="Four bytes, the highest first, in base64 (RFC 4648, section 4).",
    ),
]
ContentDigest = Annotated[
    str,
    keywords(description="RFC 9530, as in `sha-256=:…:`; also `sha-512`, `sha` and `md5`."),
]

MediaPath = Annotated[str, keywords(format="uri-reference", pattern="^/media/[0-9a-f]{32}$")]
DerivedPath = Annotated[str, keywords(format="uri-reference", pattern="^/media/[0-9a-f]{32}/")]

Ranges = Annotated[
    list[Annotated[list[Count], keywords(minItems=2, maxItems=2)]],
    keywords(description="Half-open byte ranges, in order; they neither overlap nor touch."),
]
