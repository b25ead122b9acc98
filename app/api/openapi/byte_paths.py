"""The operations that carry files: `/upload`, `/batch`, `/media/{id}`."""

from __future__ import annotations

from app.api.openapi.answers import (
    CHANGED,
    FORBIDDEN,
    NO_SUCH_RANGE,
    Schema,
    bare_answer,
    json_answer,
    named_headers,
    problems,
)
from app.api.openapi.json_paths import BY_ID, MISSING
from app.api.openapi.schemas import (
    BYTES,
    CLIENT_KEY,
    FILENAME,
    FINGERPRINT,
    NO_CONTROLS,
    RECEIPTS,
)
from app.domain.errors import (
    BodyStalled,
    BodyTruncated,
    ChunkMismatch,
    DigestMismatch,
    InvalidRequest,
    MalformedBody,
    NoRoom,
    ServerBusy,
    TooLarge,
    TooManyGaps,
    TypeNotAllowed,
    UnknownChunkFields,
    UploadConflict,
    UploadGone,
    WriterSuperseded,
)

FORM = "multipart/form-data"
OCTETS = "application/octet-stream"

PART_NAMES: Schema = {"minLength": 1, "pattern": NO_CONTROLS}

FILE: Schema = {"type": "string", "format": "binary", "description": "The bytes; the last part."}

CHUNK_FIELDS: dict[str, Schema] = {
    "dzuuid": CLIENT_KEY,
    "dzchunkindex": {**BYTES, "description": "Counted from 0."},
    "dztotalfilesize": {**BYTES, "description": "Bytes of the whole file."},
    "dzchunksize": {**BYTES, "minimum": 1, "description": "Bytes of every chunk but the last."},
    "dztotalchunkcount": {**BYTES, "minimum": 1, "description": "Chunks of the file."},
    "dzchunkbyteoffset": {**BYTES, "description": "Index times chunk size."},
}
"""Dropzone's; all of them or none. They have to agree with each other and with the body."""

CONTENT_DIGEST: Schema = {
    "type": "string",
    "description": "RFC 9530: `sha-256=:…:`; also `sha-512`, `sha`, `md5`.",
}

RAW_PARAMETERS: list[Schema] = [
    *(
        {"name": name, "in": "query", "schema": schema, "description": "Of a raw chunk."}
        for name, schema in CHUNK_FIELDS.items()
    ),
    {"name": "filename", "in": "query", "schema": FILENAME, "description": "Of a raw chunk."},
    {
        "name": "Content-Digest",
        "in": "header",
        "schema": CONTENT_DIGEST,
        "description": "Of a raw chunk. One that does not match leaves nothing of the chunk.",
    },
]

UPLOAD: Schema = {
    "post": {
        "operationId": "sendChunk",
        "tags": ["uploads"],
        "summary": "Send a chunk of an upload, or whole files",
        "description": (
            "A form with the `dz` fields is a chunk, in any order and as often as you like. A form "
            "without them stores each of its files whole, unless it has the fields or headers of "
            "another chunk protocol: those of some libraries are taken as they are, any others "
            "refused (`unknown_chunk_fields`). A raw body is a chunk whose fields stand "
            "in the query string."
        ),
        "parameters": RAW_PARAMETERS,
        "requestBody": {
            "required": True,
            "content": {
                FORM: {
                    "schema": {
                        "type": "object",
                        "properties": {
                            **CHUNK_FIELDS,
                            "digest": {**CONTENT_DIGEST, "description": "Of the chunk."},
                            "file": FILE,
                        },
                        "required": ["file"],
                        "propertyNames": PART_NAMES,
                        "dependentRequired": {
                            name: [other for other in CHUNK_FIELDS if other != name]
                            for name in CHUNK_FIELDS
                        },
                    },
                },
                OCTETS: {"schema": {"type": "string", "format": "binary"}},
            },
        },
        "responses": {
            "200": json_answer("Taken; the upload as it is now.", "Receipt"),
            "303": bare_answer("The same for a browser's plain form: back to the page."),
            **problems(
                InvalidRequest,
                MalformedBody,
                UnknownChunkFields,
                ChunkMismatch,
                TooManyGaps,
                DigestMismatch,
                BodyTruncated,
                FORBIDDEN,
                BodyStalled,
                UploadConflict,
                WriterSuperseded,
                UploadGone,
                TooLarge,
                TypeNotAllowed,
                ServerBusy,
                NoRoom,
            ),
        },
    },
}

FINGERPRINTS: Schema = {
    "type": "array",
    "items": FINGERPRINT,
    "description": "Each in front of its file. With the length, it names the file's content.",
}

LENGTHS: Schema = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0},
    "description": "Each in front of its file: how many bytes it has.",
}

BATCH: Schema = {
    "post": {
        "operationId": "sendBatch",
        "tags": ["uploads"],
        "summary": "Send many whole files in one form",
        "description": (
            "A file that is refused does not stop the others: its receipt says why. A file behind "
            "a `fingerprint` that was stored with it before is not stored again. A file behind its "
            "`length` in bytes is not searched for its end. Where the body breaks, the problem "
            "has the receipts of the files that came whole before."
        ),
        "requestBody": {
            "required": True,
            "content": {
                FORM: {
                    "schema": {
                        "type": "object",
                        "properties": {
                            "fingerprint": FINGERPRINTS,
                            "length": LENGTHS,
                            "file": {"type": "array", "items": FILE},
                        },
                        "propertyNames": PART_NAMES,
                    }
                }
            },
        },
        "responses": {
            "200": json_answer("A receipt for each file, in their order.", "BatchReceipt"),
            **problems(
                MalformedBody,
                ChunkMismatch,
                BodyTruncated,
                FORBIDDEN,
                BodyStalled,
                TooLarge,
                members=RECEIPTS,
            ),
        },
    },
}

MEDIA_HEADERS = (
    "X-Request-ID",
    "ETag",
    "Last-Modified",
    "Accept-Ranges",
    "Content-Disposition",
)

BYTES_OF_FILE: Schema = {"*/*": {"schema": {"type": "string", "format": "binary"}}}


def _condition(name: str, description: str) -> Schema:
    return {
        "name": name,
        "in": "header",
        "schema": {"type": "string"},
        "description": description,
    }


CONDITIONS: list[Schema] = [
    _condition("If-Match", "Send only if the file has one of these tags."),
    _condition("If-None-Match", "Send only if the file has none of these tags."),
    _condition("If-Unmodified-Since", "Send only if the file is not newer."),
    _condition("If-Modified-Since", "Send only if the file is newer."),
]

DOWNLOAD: Schema = {
    "name": "download",
    "in": "query",
    "schema": {"type": "string"},
    "allowEmptyValue": True,
    "description": "With any value: `attachment`, also for what a browser may play.",
}

NOT_SENT: Schema = {
    "304": bare_answer("The client has it.", *MEDIA_HEADERS[1:]),
    **problems(*MISSING, CHANGED, NO_SUCH_RANGE),
}

MEDIA: Schema = {
    "parameters": [BY_ID, DOWNLOAD, *CONDITIONS],
    "get": {
        "operationId": "fetchFile",
        "tags": ["videos"],
        "summary": "The bytes of a video, or a part of them",
        "parameters": [
            _condition(
                "Range",
                "As in `bytes=0-9`, or up to 100 ranges. A malformed header gets the whole file.",
            ),
            _condition("If-Range", "A part only of the version with this tag or date."),
        ],
        "responses": {
            "200": {
                "description": "The whole file.",
                "headers": named_headers(*MEDIA_HEADERS),
                "content": BYTES_OF_FILE,
            },
            "206": {
                "description": "The part that was asked for, with a Content-Range; of several "
                "ranges a `multipart/byteranges`, with a Content-Range in each of its parts.",
                "headers": named_headers(*MEDIA_HEADERS, "Content-Range"),
                "content": BYTES_OF_FILE,
            },
            **NOT_SENT,
        },
    },
    "head": {
        "operationId": "lookAtFile",
        "tags": ["videos"],
        "summary": "The headers of the whole file",
        "responses": {
            "200": bare_answer("As GET, without the bytes.", *MEDIA_HEADERS[1:]),
            **{
                status: {key: value for key, value in response.items() if key != "content"}
                for status, response in NOT_SENT.items()
                if status != "416"
            },
        },
    },
}

PATHS: dict[str, Schema] = {"/upload": UPLOAD, "/batch": BATCH, "/media/{upload_id}": MEDIA}
