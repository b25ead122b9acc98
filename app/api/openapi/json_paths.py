"""The operations of `/api` and the checks of the server's health."""

from __future__ import annotations

from app.api.openapi.answers import (
    FORBIDDEN,
    JSON,
    NOT_FOUND,
    Schema,
    bare_answer,
    json_answer,
    problems,
    reference,
)
from app.api.openapi.schemas import ID
from app.domain.errors import (
    BodyStalled,
    BodyTruncated,
    InvalidRequest,
    NoRoom,
    TooLarge,
    TypeNotAllowed,
    UploadComplete,
    UploadGone,
    UploadNotFound,
)
from app.uploads.library import MAX_PAGE

BY_ID: Schema = {"name": "upload_id", "in": "path", "required": True, "schema": ID}

MISSING = (UploadNotFound, NOT_FOUND, UploadGone)

PAGE_PARAMETERS: list[Schema] = [
    {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 0, "default": 50},
        "description": f"Videos on the page: from 1 to {MAX_PAGE}, whatever is asked for.",
    },
    {
        "name": "cursor",
        "in": "query",
        "schema": {"type": "string", "pattern": "^[0-9]{1,16}\\.[0-9a-f]{32}$"},
        "description": "The `next` of the page before.",
    },
]

UPLOADS: Schema = {
    "post": {
        "operationId": "createUpload",
        "tags": ["uploads"],
        "summary": "Create an upload, with its room reserved",
        "requestBody": {
            "required": True,
            "content": {JSON: {"schema": reference("NewUpload")}},
        },
        "responses": {
            "200": json_answer("The one that is known already.", "Upload", "Location"),
            "201": json_answer("Created.", "Upload", "Location"),
            **problems(
                InvalidRequest,
                BodyTruncated,
                FORBIDDEN,
                BodyStalled,
                TooLarge,
                TypeNotAllowed,
                NoRoom,
            ),
        },
    },
    "get": {
        "operationId": "listUploads",
        "tags": ["uploads"],
        "summary": "The uploads under way, newest first",
        "responses": {"200": json_answer("At most 1000.", "Uploads"), **problems()},
    },
}

ONE_UPLOAD: Schema = {
    "parameters": [BY_ID],
    "get": {
        "operationId": "showUpload",
        "tags": ["uploads"],
        "summary": "What has arrived of an upload, and what is missing",
        "responses": {"200": json_answer("The upload.", "Upload"), **problems(*MISSING)},
    },
    "delete": {
        "operationId": "cancelUpload",
        "tags": ["uploads"],
        "summary": "Cancel an upload and free its room",
        "responses": {
            "204": bare_answer("Cancelled."),
            **problems(FORBIDDEN, *MISSING, UploadComplete),
        },
    },
}

VIDEOS: Schema = {
    "get": {
        "operationId": "listVideos",
        "tags": ["videos"],
        "summary": "A page of videos, newest first",
        "parameters": PAGE_PARAMETERS,
        "responses": {"200": json_answer("The page.", "Videos"), **problems(InvalidRequest)},
    },
}

ONE_VIDEO: Schema = {
    "parameters": [BY_ID],
    "get": {
        "operationId": "showVideo",
        "tags": ["videos"],
        "summary": "One video",
        "responses": {"200": json_answer("The video.", "Video"), **problems(*MISSING)},
    },
    "delete": {
        "operationId": "deleteVideo",
        "tags": ["videos"],
        "summary": "Delete a video and its file",
        "responses": {"204": bare_answer("Deleted."), **problems(FORBIDDEN, *MISSING)},
    },
}

SERVER: Schema = {
    "get": {
        "operationId": "showServer",
        "tags": ["server"],
        "summary": "What a client should know before it sends anything",
        "responses": {"200": json_answer("The server's limits and clock.", "Server"), **problems()},
    },
}

ALIVE: Schema = {
    "get": {
        "operationId": "isAlive",
        "tags": ["server"],
        "summary": "Whether the process answers",
        "responses": {"200": json_answer("It does.", "Alive"), **problems()},
    },
}

READY: Schema = {
    "get": {
        "operationId": "isReady",
        "tags": ["server"],
        "summary": "Whether uploads can be taken",
        "responses": {
            "200": json_answer("They can.", "Ready"),
            "503": json_answer("They cannot; `problems` says why.", "Ready"),
            **problems(),
        },
    },
}

STATUS: Schema = {
    "get": {
        "operationId": "showStatus",
        "tags": ["server"],
        "summary": "What the server does now, and has done since it started",
        "responses": {
            "200": json_answer("Sums over all processes of the server.", "Status"),
            **problems(),
        },
    },
}

DESCRIPTION: Schema = {
    "get": {
        "operationId": "describe",
        "tags": ["server"],
        "summary": "This document",
        "responses": {
            "200": {"description": "OpenAPI 3.1.", "content": {JSON: {"schema": {}}}},
            **problems(),
        },
    },
}

PATHS: dict[str, Schema] = {
    "/api/server": SERVER,
    "/api/status": STATUS,
    "/api/uploads": UPLOADS,
    "/api/uploads/{upload_id}": ONE_UPLOAD,
    "/api/videos": VIDEOS,
    "/api/videos/{upload_id}": ONE_VIDEO,
    "/healthz": ALIVE,
    "/readyz": READY,
    "/openapi.json": DESCRIPTION,
}
