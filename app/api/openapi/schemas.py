"""The shapes of JSON bodies, and the headers and parameters that several operations share."""

from __future__ import annotations

from app.api.openapi.answers import Schema, problem_codes, reference
from app.api.openapi.status_schema import STATUS
from app.domain.lifecycle import UploadState
from app.domain.policy import MAX_FILENAME_CHARACTERS, MAX_KEY_CHARACTERS

ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
BYTES: Schema = {"type": "integer", "format": "int64", "minimum": 0}
INSTANT: Schema = {"type": "string", "format": "date-time"}
DIGEST: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
MEDIA: Schema = {"type": "string", "format": "uri-reference", "pattern": "^/media/[0-9a-f]{32}$"}
STATE: Schema = {"enum": [state.value for state in UploadState]}

RANGES: Schema = {
    "type": "array",
    "items": {"type": "array", "items": BYTES, "minItems": 2, "maxItems": 2},
    "description": "Half-open: [0, 10] is ten bytes. In order; they neither overlap nor touch.",
}

NO_CONTROLS = "^[^\\x00-\\x1f\\x7f-\\x9f]*$"

FILENAME: Schema = {
    "type": "string",
    "maxLength": MAX_FILENAME_CHARACTERS,
    "pattern": NO_CONTROLS,
    "description": "May have folders in it. It is kept in NFC, without steps to parent folders.",
}

FINGERPRINT: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_KEY_CHARACTERS,
    "pattern": "^[\\p{L}\\p{M}\\p{N}\\p{P}\\p{S} ]+$",
    "description": "Names the file on the client's side.",
}

CLIENT_KEY: Schema = {
    "type": "string",
    "pattern": f"^[A-Za-z0-9._:-]{{1,{MAX_KEY_CHARACTERS}}}$",
    "description": "The client's name for the upload, or the id of one that was created.",
}


def nullable(schema: Schema, description: str = "") -> Schema:
    """That schema or null."""
    either: Schema = {"anyOf": [schema, {"type": "null"}]}
    return {**either, "description": description} if description else either


def shape(*optional: str, **properties: Schema) -> Schema:
    """An object with these properties, all but the `optional` ones required.

    More properties may come with later versions: clients pass over what they do not know.
    """
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def list_of(item: Schema) -> Schema:
    """An array of that."""
    return {"type": "array", "items": item}


def schemas() -> dict[str, Schema]:
    """The shared schemas by their names."""
    return {
        "Upload": UPLOAD,
        "Uploads": shape(uploads=list_of(reference("Upload"))),
        "NewUpload": NEW_UPLOAD,
        "Video": VIDEO,
        "Videos": shape(
            videos=list_of(reference("Video")),
            next=nullable({"type": "string"}, "The following page's `cursor`, if any."),
        ),
        "Receipt": RECEIPT,
        "BatchReceipt": shape(**RECEIPTS),
        "Server": SERVER,
        "Alive": shape(status={"const": "ok"}),
        "Ready": READY,
        "Status": STATUS,
        "Problem": problem_schema(),
    }


def problem_schema() -> Schema:
    """A problem document (RFC 9457); the codes are those of the error tree."""
    return shape(
        type={"type": "string", "pattern": "^urn:sluice:problem:"},
        title={"type": "string"},
        status={"type": "integer", "minimum": 400, "maximum": 599},
        detail={"type": "string", "description": "For people; programs decide by `code`."},
        code={"type": "string", "enum": problem_codes()},
        retryable={"type": "boolean", "description": "Whether the same request may succeed later."},
    )


UPLOAD = shape(
    "media",
    "sha256",
    id=ID,
    filename=FILENAME,
    length=nullable(BYTES, "Null until the client has told it."),
    offset={**BYTES, "description": "End of what has arrived without a gap."},
    received=RANGES,
    missing=RANGES,
    state=STATE,
    expires=nullable(INSTANT, "Moves on with every chunk; null for a complete upload."),
    created=INSTANT,
    fingerprint=nullable({"type": "string"}),
    media={**MEDIA, "description": "Once complete."},
    sha256=nullable(DIGEST, "Once complete; null until it has been computed."),
)

NEW_UPLOAD: Schema = {
    **shape("fingerprint", name=FILENAME, size=BYTES, fingerprint=nullable(FINGERPRINT)),
    "examples": [{"name": "film.mp4", "size": 3000, "fingerprint": "film.mp4-3000-1767225600000"}],
}

VIDEO = shape(
    id=ID,
    filename=FILENAME,
    length=BYTES,
    content_type={"type": "string", "description": "From the name, never from what was sent."},
    inline={"type": "boolean", "description": "Whether a browser may play it in place."},
    published=INSTANT,
    media=MEDIA,
    sha256=nullable(DIGEST, "Null until it has been computed."),
)

STORED_RECEIPT = shape(
    "media",
    "sha256",
    id=ID,
    filename=FILENAME,
    received={**BYTES, "description": "Bytes that are there, in whatever order they came."},
    length=BYTES,
    complete={"type": "boolean"},
    state=STATE,
    media={**MEDIA, "description": "Once complete."},
    sha256={**DIGEST, "description": "Once computed."},
)

RECEIPT: Schema = {
    **STORED_RECEIPT,
    "properties": {
        **STORED_RECEIPT["properties"],
        "files": {
            **list_of(STORED_RECEIPT),
            "description": "Where the form had several files: one for each, the first included.",
        },
    },
}

STORED_FILE = shape(
    "media",
    "known",
    name=FILENAME,
    id=ID,
    length=BYTES,
    sha256=nullable(DIGEST),
    media=MEDIA,
    known={"const": True, "description": "An earlier file with this fingerprint stands for it."},
)

REFUSED_FILE = shape(name={"type": "string"}, error=reference("Problem"))

RECEIPTS: Schema = {
    "stored": {"type": "integer", "minimum": 0},
    "refused": {"type": "integer", "minimum": 0},
    "files": list_of({"anyOf": [STORED_FILE, REFUSED_FILE]}),
}

SERVER = shape(
    version={"type": "string"},
    chunk_bytes={**BYTES, "description": "The size of chunk to send."},
    max_upload_bytes={**BYTES, "description": "The largest file that is taken."},
    time={**INSTANT, "description": "The server's clock."},
)

READY = shape(
    status={"enum": ["ready", "not ready"]},
    problems=list_of(
        shape(
            code={"type": "string"},
            detail={"type": "string"},
            is_fatal={"type": "boolean", "description": "Whether no upload can be taken."},
        )
    ),
)

HEADERS: dict[str, Schema] = {
    "X-Request-ID": {
        "description": "Names the request in the log: the client's own if it sent one, or ours.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    },
    "Location": {
        "description": "Where the upload is.",
        "required": True,
        "schema": {"type": "string", "pattern": "^(https?:/)?/(.+/)?api/uploads/[0-9a-f]{32}$"},
    },
    "Retry-After": {
        "description": "Seconds to wait; with a problem that is worth a retry.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "ETag": {
        "description": "Strong: the bytes under an id never change.",
        "required": True,
        "schema": {"type": "string", "pattern": '^"[0-9a-f]{32}"$'},
    },
    "Last-Modified": {
        "description": "When the file was published. Left out of a 304.",
        "schema": {"type": "string"},
    },
    "Accept-Ranges": {"required": True, "schema": {"const": "bytes"}},
    "Content-Range": {
        "description": "Inclusive, as in `bytes 0-9/100`.",
        "required": True,
        "schema": {"type": "string", "pattern": "^bytes [0-9]+-[0-9]+/[0-9]+$"},
    },
    "Content-Disposition": {
        "description": "`inline` for what a browser may play, else `attachment`; with the name.",
        "required": True,
        "schema": {"type": "string", "pattern": "^(inline|attachment); filename="},
    },
}
