"""One run through the API that gets every answer a client can cause."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from flask import Flask

from app.access.people import Person, add_person, find_by_email
from app.core.access import LOCAL
from tests.derived import place
from tests.dropzone_client import ChunkedFile, form_body
from tests.web.answers import Conversation
from tests.web.application import MAX_UPLOAD_BYTES, offer_renditions

SESSION = "/api/session"
UPLOADS, UPLOAD = "/api/uploads", "/api/uploads/{upload_id}"
SENT = "/api/uploads/sent"
CELLS, CELLS_STORED = f"{UPLOAD}/cells", f"{UPLOAD}/cells/stored"
VIDEOS, VIDEO = "/api/videos", "/api/videos/{upload_id}"
RENDITION = "/api/videos/{upload_id}/renditions/{height}"
MEDIA = "/media/{upload_id}"
ARCHIVE = "/media/archive"
SHARE_LINKS, SHARE_LINK = "/api/share-links", "/api/share-links/{link_id}"
UPLOAD_LINKS, UPLOAD_LINK = "/api/upload-links", "/api/upload-links/{link_id}"

PROJECTS, PROJECT = "/api/projects", "/api/projects/{project_id}"
TEAM, MEMBER = f"{PROJECT}/members", f"{PROJECT}/members/{{person_id}}"
KEYS, KEY = "/api/keys", "/api/keys/{key_id}"
AUDIT, AUDIT_FILE = "/api/audit", "/api/audit/export.{ending}"
WEBHOOKS, WEBHOOK = "/api/webhooks", "/api/webhooks/{webhook_id}"
SECRET, TEST, DELIVERIES = f"{WEBHOOK}/secret", f"{WEBHOOK}/test", f"{WEBHOOK}/deliveries"
RENEWED = f"{SECRET}/renew"
AGAIN = f"{DELIVERIES}/{{delivery_id}}/send-again"

UNKNOWN = "0" * 32
NEW_NAME = {"filename": "renamed.mp4"}
FOREIGN = {"Origin": "https://elsewhere.example"}


def hold_conversation(app: Flask) -> Conversation:
    """Every answer of an application that accepts mp4 and txt files only."""
    conversation = Conversation(app.test_client())
    _look_around(conversation)
    _create(conversation)
    _refuse_to_create(conversation)
    _send_chunks(conversation)
    _refuse_chunks(conversation)
    _refuse_cells(conversation)
    _send_batches(conversation)
    _fetch(conversation)
    _fetch_archives(conversation)
    _share(conversation)
    _make_upload_links(conversation)
    _order_renditions(conversation, app)
    _delete(conversation)
    _manage_projects(conversation, app)
    _manage_keys(conversation)
    _read_audit_log(conversation)
    _manage_webhooks(conversation)
    _sign_in(conversation, app)
    return conversation


def _look_around(conversation: Conversation) -> None:
    for path in ("/api/server", "/api/status", "/healthz", "/readyz"):
        conversation.ask("get", path)
    for path in (VIDEOS, UPLOADS, "/openapi.json", "/openapi.yaml"):
        conversation.ask("get", path)
    for path in (UPLOAD, VIDEO, MEDIA):
        conversation.ask("get", path, UNKNOWN)
        conversation.ask("get", path, "a/b")
    conversation.ask("head", MEDIA, UNKNOWN)
    for path in (UPLOAD, VIDEO):
        conversation.ask("delete", path, UNKNOWN)
        conversation.ask("delete", path, UNKNOWN, headers=FOREIGN)
    conversation.ask("patch", VIDEO, UNKNOWN, json=NEW_NAME)
    conversation.ask("patch", VIDEO, UNKNOWN, json=NEW_NAME, headers=FOREIGN)
    for method in ("post", "delete"):
        conversation.ask(method, RENDITION, UNKNOWN)
        conversation.ask(method, RENDITION, UNKNOWN, headers=FOREIGN)
    conversation.ask("get", VIDEOS, query_string="cursor=x")


def _create(conversation: Conversation) -> None:
    new = {"name": "film.mp4", "size": 3000, "fingerprint": "film"}
    created = conversation.ask("post", UPLOADS, json=new)
    conversation.ask("post", UPLOADS, json=new)
    conversation.ask("post", UPLOADS, json={"name": "a.mp4", "size": 0})
    conversation.ask("get", UPLOADS)
    conversation.ask("get", SENT)
    conversation.ask("get", UPLOAD, created["id"])
    conversation.ask("delete", UPLOAD, created["id"])
    conversation.ask("delete", UPLOAD, created["id"])
    conversation.ask("get", UPLOAD, created["id"])


def _refuse_to_create(conversation: Conversation) -> None:
    large = {"name": "film.mp4", "size": MAX_UPLOAD_BYTES + 1}
    conversation.ask("get", UPLOADS, query_string={"id": "1"})
    conversation.ask("post", UPLOADS, data=b"{")
    conversation.ask("post", UPLOADS, json=large)
    conversation.ask("post", UPLOADS, json={"name": "run.exe", "size": 1})
    conversation.ask("post", UPLOADS, json=large, headers=FOREIGN)


def _send_chunks(conversation: Conversation) -> None:
    file = ChunkedFile(b"0123456789", 4, key="chunked")
    for index in (0, 2, 1):
        conversation.send(file.body(index))
    raw = ChunkedFile(b"0123456789", 10, key="raw")
    conversation.ask(
        "post", "/upload", query_string={**raw.fields(0), "filename": "a.mp4"}, data=raw.content
    )
    conversation.send(form_body({}, [("a.mp4", b"a"), ("b.txt", b"b")]))
    conversation.send(form_body({}, [("a.mp4", b"a")]), Accept="text/html")


def _refuse_chunks(conversation: Conversation) -> None:
    file = ChunkedFile(b"0123456789", 10, key="refused")
    conversation.send(b"junk")
    conversation.send(file.body(0, dzchunkindex="x"))
    conversation.send(file.body(0, dzchunkindex="1"))
    conversation.send(file.body(0, digest=f"md5=:{'A' * 22}==:"))
    conversation.send(file.body(0, dztotalfilesize="9" * 17))
    conversation.send(file.body(0), **FOREIGN)
    large = ChunkedFile(b"x" * (MAX_UPLOAD_BYTES + 1), MAX_UPLOAD_BYTES)
    conversation.send(large.body(1))
    conversation.send(ChunkedFile(b"x", 1, filename="run.exe").body(0))
    conversation.send(ChunkedFile(b"0123456789a", 11, key="chunked").body(0))
    gone = conversation.ask("post", UPLOADS, json={"name": "a.mp4", "size": 1})["id"]
    conversation.ask("delete", UPLOAD, gone)
    conversation.send(ChunkedFile(b"x", 1, key=gone).body(0))


def _refuse_cells(conversation: Conversation) -> None:
    upload = conversation.ask("post", UPLOADS, json={"name": "a.mp4", "size": 1})["id"]
    cells = {"cells": [{"start": 0, "length": 1, "crc32c": "AAAAAA=="}]}
    for path in (CELLS, CELLS_STORED):
        conversation.ask("post", path, upload, json=cells)
        conversation.ask("post", path, upload, json={"cells": []})
        conversation.ask("post", path, upload, json={**cells, "more": "x" * 70_000})
        conversation.ask("post", path, upload, json=cells, headers=FOREIGN)
        conversation.ask("post", path, UNKNOWN, json=cells)
    conversation.ask("delete", UPLOAD, upload)
    for path in (CELLS, CELLS_STORED):
        conversation.ask("post", path, upload, json=cells)


def _send_batches(conversation: Conversation) -> None:
    files = [("a.mp4", b"a"), ("run.exe", b"b")]
    conversation.send(form_body({}, files), "/batch")
    for _ in range(2):
        conversation.send(form_body({"fingerprint": "a.mp4-1"}, files[:1]), "/batch")
    conversation.send(b"junk", "/batch")
    conversation.send(b"junk", "/batch", **FOREIGN)


def _fetch(conversation: Conversation) -> None:
    video = conversation.ask("get", VIDEOS, query_string="limit=1")["videos"][0]["id"]
    conversation.ask("get", VIDEO, video)
    conversation.ask("get", UPLOAD, video)
    conversation.ask("delete", UPLOAD, video)
    for name in ("renamed.mp4", "", "run.exe"):
        conversation.ask("patch", VIDEO, video, json={"filename": name})
    conversation.ask("patch", VIDEO, video, json={"filename": "a.mp4", "more": "x" * 70_000})
    conversation.ask("get", VIDEOS, query_string="q=RENAMED&sort=-name&limit=1")
    for headers in (
        {},
        {"Range": "bytes=0-0"},
        {"Range": "bytes=99-"},
        {"If-None-Match": f'"{video}-video/mp4"'},
        {"If-Match": '"other"'},
    ):
        conversation.ask("get", MEDIA, video, headers=headers)
        conversation.ask("head", MEDIA, video, headers=headers)
    conversation.ask("get", MEDIA, video, query_string="download")


def _fetch_archives(conversation: Conversation) -> None:
    videos = conversation.ask("get", VIDEOS, query_string="limit=2")["videos"]
    conversation.ask("post", ARCHIVE, data={"id": [video["id"] for video in videos]})
    conversation.ask("post", ARCHIVE, data={"id": UNKNOWN})
    conversation.ask("post", ARCHIVE, data={"id": UNKNOWN}, headers=FOREIGN)
    conversation.ask("post", ARCHIVE)
    conversation.ask("post", ARCHIVE, data=b"x" * 70_000)


def _share(conversation: Conversation) -> None:
    videos = conversation.ask("get", VIDEOS, query_string="limit=2")["videos"]
    ids = [video["id"] for video in videos]
    link = conversation.ask("post", SHARE_LINKS, json={"videos": ids, "expires": 60})
    conversation.ask("post", SHARE_LINKS, json={"videos": [UNKNOWN]})
    conversation.ask("post", SHARE_LINKS, json={"videos": []})
    conversation.ask("post", SHARE_LINKS, json={"videos": ids, "name": "x" * 70_000})
    conversation.ask("post", SHARE_LINKS, json={"videos": ids}, headers=FOREIGN)
    conversation.ask("get", SHARE_LINKS)
    within = {"link_id": link["id"]}
    for terms in ({"name": "Trip", "max_views": 3}, {"max_views": 0}, {"name": "x" * 1_100_000}):
        conversation.ask("patch", SHARE_LINK, within=within, json=terms)
    conversation.ask("patch", SHARE_LINK, within=within, json={}, headers=FOREIGN)
    conversation.ask("delete", SHARE_LINK, within=within, headers=FOREIGN)
    for _ in range(2):
        conversation.ask("delete", SHARE_LINK, within=within)
    conversation.ask("patch", SHARE_LINK, within=within, json={})


def _make_upload_links(conversation: Conversation) -> None:
    for terms in ({"name": "x" * 201}, {"name": 7}, {"name": "x" * 70_000}):
        conversation.ask("post", UPLOAD_LINKS, json=terms)
    conversation.ask("post", UPLOAD_LINKS, json={}, headers=FOREIGN)
    link = conversation.ask("post", UPLOAD_LINKS, json={"max_files": 3, "expires": 60})
    conversation.ask("get", UPLOAD_LINKS)
    for within in ({"link_id": link["id"]}, {"link_id": UNKNOWN}):
        conversation.ask("get", UPLOAD_LINK, within=within)
        for terms in ({"message": "Thanks!"}, {"max_files": 0}, {"name": "x" * 70_000}):
            conversation.ask("patch", UPLOAD_LINK, within=within, json=terms)
        for method in ("patch", "delete"):
            conversation.ask(method, UPLOAD_LINK, within=within, json={}, headers=FOREIGN)
        conversation.ask("delete", UPLOAD_LINK, within=within)


def _order_renditions(conversation: Conversation, app: Flask) -> None:
    video = conversation.ask("get", VIDEOS, query_string="limit=1")["videos"][0]["id"]
    files = offer_renditions(app, video)
    conversation.ask("post", RENDITION, video, height=1080)
    conversation.ask("post", RENDITION, video)
    conversation.ask("get", VIDEO, video)
    place(files, video, "renditions/720.mp4", b"film")
    conversation.ask("post", RENDITION, video)
    conversation.ask("delete", RENDITION, video)


def _delete(conversation: Conversation) -> None:
    video = conversation.ask("get", VIDEOS, query_string="limit=1")["videos"][0]["id"]
    conversation.ask("delete", VIDEO, video)
    conversation.ask("post", ARCHIVE, data={"id": video})
    conversation.ask("delete", VIDEO, video)
    for path in (VIDEO, MEDIA):
        conversation.ask("get", path, video)
    conversation.ask("patch", VIDEO, video, json=NEW_NAME)
    conversation.ask("post", SHARE_LINKS, json={"videos": [video]})
    conversation.ask("post", RENDITION, video)
    conversation.ask("delete", RENDITION, video)
    conversation.ask("head", MEDIA, video)


def _manage_projects(conversation: Conversation, app: Flask) -> None:
    people = {name: _person(app, name) for name in ("ann", "ben")}
    project = conversation.ask("post", PROJECTS, json={"name": "News"})["id"]
    conversation.ask("get", PROJECTS)
    _refuse_bodies(conversation, "post", PROJECTS, {"name": ""})
    here = {"project_id": project}
    conversation.ask("get", PROJECT, within=here)
    conversation.ask("patch", PROJECT, within=here, json={"name": "Films", "quota_bytes": 1 << 40})
    _refuse_bodies(conversation, "patch", PROJECT, {"name": ""}, here)
    for name in people:
        new = {"email": f"{name}@example.org", "role": "manager"}
        conversation.ask("post", TEAM, within=here, json=new)
    stranger = {"email": "stranger@example.org", "role": "viewer"}
    conversation.ask("post", TEAM, within=here, json=stranger)
    conversation.ask("get", TEAM, within=here)
    _refuse_bodies(conversation, "post", TEAM, {"email": "ann@example.org", "role": "boss"}, here)
    ann, ben = ({**here, "person_id": person} for person in people.values())
    _refuse_bodies(conversation, "patch", MEMBER, {"role": "boss"}, ann)
    conversation.ask("patch", MEMBER, within=ann, json={"role": "viewer"})
    conversation.ask("patch", MEMBER, within=ben, json={"role": "viewer"})
    conversation.ask("delete", MEMBER, within=ben)
    for _ in range(2):
        conversation.ask("delete", MEMBER, within=ann)
    conversation.ask("delete", MEMBER, within=ann, headers=FOREIGN)
    conversation.ask("delete", PROJECT, within={"project_id": "local"})
    conversation.ask("delete", PROJECT, within=here, headers=FOREIGN)
    for _ in range(2):
        conversation.ask("delete", PROJECT, within=here)
    conversation.ask("get", PROJECT, within=here)
    conversation.ask("get", TEAM, within=here)
    conversation.ask("patch", PROJECT, within=here, json={"name": "Films"})
    conversation.ask("post", TEAM, within=here, json={"email": "a@example.org", "role": "viewer"})
    conversation.ask("patch", MEMBER, within=ann, json={"role": "viewer"})


def _manage_keys(conversation: Conversation) -> None:
    new = {"name": "backup", "role": "uploader", "expires": 3600}
    made = conversation.ask("post", KEYS, json=new)
    conversation.ask("get", KEYS)
    _refuse_bodies(conversation, "post", KEYS, {**new, "role": "boss"})
    here = {"key_id": made["id"]}
    conversation.ask("delete", KEY, within=here, headers=FOREIGN)
    for _ in range(2):
        conversation.ask("delete", KEY, within=here)
    elsewhere: dict[str, Any] = {"query_string": {"project": UNKNOWN}}
    conversation.ask("get", KEYS, **elsewhere)
    conversation.ask("post", KEYS, json=new, **elsewhere)


def _read_audit_log(conversation: Conversation) -> None:
    for query in ({}, {"since": "x"}, {"project": UNKNOWN}):
        conversation.ask("get", AUDIT, query_string=query)
        conversation.ask("get", AUDIT_FILE, within={"ending": "csv"}, query_string=query)
    conversation.ask("get", AUDIT_FILE, within={"ending": "jsonl"})
    conversation.ask("get", AUDIT_FILE, within={"ending": "xls"})


def _manage_webhooks(conversation: Conversation) -> None:
    new = {"url": "https://hooks.example/", "events": ["video.ready"]}
    here = {"webhook_id": conversation.ask("post", WEBHOOKS, json=new)["id"]}
    conversation.ask("get", WEBHOOKS)
    _refuse_bodies(conversation, "post", WEBHOOKS, {"url": "ftp://hooks.example/"})
    for method in ("get", "post"):
        conversation.ask(method, WEBHOOKS, json=new, query_string={"project": UNKNOWN})
    _refuse_bodies(conversation, "patch", WEBHOOK, {"paused": "yes"}, within=here)
    sent = conversation.ask("post", TEST, within=here)
    conversation.ask("get", DELIVERIES, within=here, query_string={"limit": 0})
    for within in (here, {"webhook_id": UNKNOWN}):
        conversation.ask("get", WEBHOOK, within=within)
        conversation.ask("patch", WEBHOOK, within=within, json={"paused": True})
        conversation.ask("get", DELIVERIES, within=within)
        for headers in ({}, FOREIGN):
            for path in (SECRET, RENEWED, TEST):
                conversation.ask("post", path, within=within, headers=headers)
            delivery = {**within, "delivery_id": sent["id"]}
            conversation.ask("post", AGAIN, within=delivery, headers=headers)
    for headers in (FOREIGN, {}, {}):
        conversation.ask("delete", WEBHOOK, within=here, headers=headers)


def _sign_in(conversation: Conversation, app: Flask) -> None:
    services = app.extensions["sluice"]
    accounts, ctx = services.identity.accounts, services.context.acting(LOCAL)
    right = {"email": "visitor@example.org", "password": "three grey geese marching"}
    accounts.add(ctx, **right)
    conversation.ask("post", SESSION, json=right)
    conversation.ask("get", SESSION)
    conversation.ask("delete", SESSION)
    conversation.ask("delete", SESSION, headers=FOREIGN)
    conversation.ask("post", SESSION, json={**right, "password": "wrong"})
    _refuse_bodies(conversation, "post", SESSION, {"email": "visitor@example.org"})
    accounts.block(ctx, find_by_email(services.context, right["email"]))
    conversation.ask("post", SESSION, json=right)


def _refuse_bodies(
    conversation: Conversation,
    method: str,
    path: str,
    bad: dict[str, object],
    within: dict[str, str] | None = None,
) -> None:
    """A value that cannot be used, too many bytes, and a page of another site."""
    where: dict[str, Any] = {"within": within or {}}
    conversation.ask(method, path, json=bad, **where)
    conversation.ask(method, path, data=b" " * 100_000, **where)
    conversation.ask(method, path, json=bad, headers=FOREIGN, **where)


def _person(app: Flask, name: str) -> str:
    """The id of a new person."""
    person = Person(
        id=f"{name:0>32}", name=name, email=f"{name}@example.org", created_at=datetime.now(UTC)
    )
    with app.extensions["sluice"].database.write() as connection:
        add_person(connection, person)
    return person.id
