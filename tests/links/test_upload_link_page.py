"""The page of an upload link, and what it asks first."""

from __future__ import annotations

import io
from datetime import UTC, datetime

from flask import Flask
from flask.testing import FlaskClient

from app.access.upload_links import keep_name, name_of
from tests.links.link_requests import HTML, TUS, MakeLink, code, create, send, sent, told

# ---- the page ------------------------------------------------------------------------------------


def test_the_page_says_what_the_link_takes(stranger: FlaskClient, make_link: MakeLink) -> None:
    link = make_link(
        name="Wedding", message="<Thanks>", max_files=3, max_bytes=10**9, extensions=["mp4"]
    )
    page = stranger.get(link["path"], headers=HTML)
    for words in ("Wedding", "&lt;Thanks&gt;", "3 more files", "1 GB more in all", "Only mp4"):
        assert words in page.text
    assert page.headers["Referrer-Policy"] == "same-origin"
    assert f"Path={link['path']}" in page.headers["Set-Cookie"]
    assert "HttpOnly" in page.headers["Set-Cookie"]


def test_files_are_sent_without_a_script(stranger: FlaskClient, make_link: MakeLink) -> None:
    link = make_link()
    file = (io.BytesIO(b"film"), "a.mp4")
    answer = stranger.post(f"{link['path']}/upload", data={"file": file}, headers=HTML)
    assert answer.status_code == 303
    assert answer.headers["Location"] == f"{link['path']}/?uploaded=1"
    assert "your file has arrived" in stranger.get(answer.headers["Location"], headers=HTML).text


# ---- password and name ---------------------------------------------------------------------------


def test_a_password_is_asked_once_of_a_browser(app: Flask, make_link: MakeLink) -> None:
    link = make_link(password="open sesame", message="For you alone")
    stranger = app.test_client()
    asked = stranger.get(link["path"], headers=HTML)
    assert "Password of this link" in asked.text
    assert "For you alone" not in asked.text
    assert code(send(stranger, link, "a.mp4", 10)) == (401, "not_signed_in")
    wrong = stranger.post(link["path"], data={"password": "sesame"}, headers=HTML)
    assert (wrong.status_code, "This is not the password" in wrong.text) == (400, True)
    right = stranger.post(link["path"], data={"password": "open sesame"}, headers=HTML)
    assert (right.status_code, right.headers["Location"]) == (303, link["path"])
    assert "For you alone" in stranger.get(link["path"], headers=HTML).text
    assert send(stranger, link, "a.mp4", 10).status_code == 200


def test_programs_send_the_password_as_that_of_basic(app: Flask, make_link: MakeLink) -> None:
    link = make_link(password="open sesame")
    program = app.test_client(use_cookies=False)
    url = f"{link['path']}/tus/"
    headers = {**TUS, "Upload-Length": "0"}
    assert program.post(url, headers=headers, auth=("", "open sesame")).status_code == 201
    refused = program.post(url, headers=headers, auth=("", "sesame"))
    assert code(refused) == (401, "not_signed_in")
    assert "Basic" in refused.headers["WWW-Authenticate"]


def test_passwords_are_not_guessed(app: Flask, make_link: MakeLink) -> None:
    link = make_link(password="open sesame")
    program = app.test_client(use_cookies=False)
    url = f"{link['path']}/api/uploads"
    tried = [program.get(url, auth=("", str(guess))).status_code for guess in range(15)]
    assert set(tried) == {401, 429}
    assert tried[-1] == 429


def test_the_title_is_shown_after_the_password(app: Flask, make_link: MakeLink) -> None:
    link = make_link(password="open sesame", name="The secret wedding", asks_name=True)
    stranger = app.test_client()
    assert "The secret wedding" not in stranger.get(link["path"], headers=HTML).text
    refused = stranger.post(link["path"], data={"password": "sesame"}, headers=HTML)
    assert "The secret wedding" not in refused.text
    stranger.post(link["path"], data={"password": "open sesame"})
    assert "The secret wedding" in stranger.get(link["path"], headers=HTML).text


def test_another_password_asks_everybody_again(
    app: Flask, member: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link(password="open sesame")
    stranger = app.test_client()
    stranger.post(link["path"], data={"password": "open sesame"})
    changed = member.patch(f"/api/upload-links/{link['id']}", json={"password": "other"})
    assert told(changed)["has_password"]
    assert send(stranger, link, "a.mp4", 10).status_code == 401
    member.patch(f"/api/upload-links/{link['id']}", json={"password": None})
    assert send(stranger, link, "a.mp4", 10).status_code == 200


def test_members_see_who_has_sent_a_file(
    app: Flask, member: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link(name="Wedding", asks_name=True)
    stranger = app.test_client()
    assert "Your name" in stranger.get(link["path"], headers=HTML).text
    nameless = stranger.post(link["path"], data={"name": " "}, headers=HTML)
    assert (nameless.status_code, "A name of 1 to" in nameless.text) == (400, True)
    assert stranger.post(link["path"], data={"name": "Ada  Lovelace"}).status_code == 303
    assert "You send as Ada Lovelace" in stranger.get(link["path"], headers=HTML).text
    video = sent(stranger, link, "a.mp4", 10)
    uploads = told(member.get(f"/api/upload-links/{link['id']}"))["uploads"]
    assert [(each["id"], each["sender_name"]) for each in uploads] == [(video, "Ada Lovelace")]
    sender = {"kind": "upload_link", "id": link["id"], "name": "Ada Lovelace", "link": "Wedding"}
    listed = told(member.get("/api/videos"))["videos"]
    assert next(each for each in listed if each["id"] == video)["sender"] == sender
    assert told(member.get(f"/api/videos/{video}"))["sender"] == sender
    for path in ("/", f"/watch/{video}"):
        assert "from Ada Lovelace via Wedding" in member.get(path, headers=HTML).text
    assert f'href="/links/upload/{link["id"]}"' in member.get(f"/watch/{video}", headers=HTML).text


def test_members_are_told_who_is_sending_and_visitors_only_that_it_is_theirs(
    app: Flask, member: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link(name="Wedding", asks_name=True)
    rosa = app.test_client()
    rosa.get(link["path"])
    rosa.post(link["path"], data={"name": "Aunt Rosa"})
    new = {"name": "film.mov", "size": 1000}
    upload = told(rosa.post(f"{link['path']}/api/uploads", json=new))
    assert upload["yours"]
    own = told(member.post("/api/uploads", json={"name": "own.mov", "size": 1000}))
    seen = {each["id"]: each for each in told(member.get("/api/uploads"))["uploads"]}
    assert (seen[upload["id"]]["yours"], seen[own["id"]]["yours"]) == (False, True)
    assert seen[upload["id"]]["sender"]["name"] == "Aunt Rosa"
    assert seen[own["id"]]["sender"] is None
    (told_to_rosa,) = told(rosa.get(f"{link['path']}/api/uploads"))["uploads"]
    assert (told_to_rosa["yours"], told_to_rosa["sender"]) == (True, None)


def test_a_visitor_finds_what_it_has_sent_after_a_reload(
    app: Flask, member: FlaskClient, make_link: MakeLink
) -> None:
    link = make_link(max_files=5, max_bytes=10_000)
    rosa, other, program = app.test_client(), app.test_client(), app.test_client(use_cookies=False)
    assert "What you have sent</h2>" in rosa.get(link["path"], headers=HTML).text
    other.get(link["path"])
    first = sent(rosa, link, "first.mp4", 1000)
    assert "Your file has arrived, 1 KB" in rosa.get(link["path"], headers=HTML).text
    sent(rosa, link, "second.mp4", 2000)
    create(rosa, link, 500)
    sent(other, link, "other.mp4", 10)
    page = rosa.get(link["path"], headers=HTML).text
    for words in ("first.mp4", "second.mp4", "2 of 3 files have arrived, 3 KB", "1 more file<"):
        assert words in page
    assert "other.mp4" not in page
    assert member.delete(f"/api/videos/{first}").status_code == 204
    found = told(rosa.get(f"{link['path']}/api/uploads/sent"))
    assert [file["filename"] for file in found["files"]] == ["second.mp4", "first.mp4"]
    assert (found["count"], found["bytes"], found["unfinished"]) == (2, 3000, 1)
    assert found["link"] == {"files_left": 1, "bytes_left": 10_000 - 3510}
    assert told(other.get(f"{link['path']}/api/uploads/sent"))["count"] == 1
    sent(program, link, "program.mp4", 10)
    assert told(program.get(f"{link['path']}/api/uploads/sent"))["files"] == []


def test_names_of_visitors_who_send_nothing_are_not_kept_without_end(
    app: Flask, make_link: MakeLink
) -> None:
    link = make_link(asks_name=True)
    ada = app.test_client()
    ada.post(link["path"], data={"name": "Ada"})
    send(ada, link, "a.mp4", 10)
    with app.extensions["sluice"].database.write() as connection:
        for number in range(4):
            now = datetime(2100, 1, 1, minute=number, tzinfo=UTC)
            keep_name(connection, link["id"], f"idle-{number}", name="Bob", now=now, max_idle=2)
        names = [name_of(connection, link["id"], f"idle-{number}") for number in range(4)]
    assert names == [None, None, "Bob", "Bob"]
    assert "You send as Ada" in ada.get(link["path"], headers=HTML).text


# ---- the pages of members ------------------------------------------------------------------------


def test_members_make_look_at_and_close_a_link(member: FlaskClient, stranger: FlaskClient) -> None:
    fields = {
        "name": "Films",
        "message": "Hello",
        "max_bytes": "1,5",
        "extensions": "mp4, .MOV",
        "lifetime": "86400",
        "asks_name": "1",
    }
    made = member.post("/links/upload", data=fields, headers=HTML)
    assert made.status_code == 303
    link = told(member.get("/api/upload-links"))["links"][0]
    assert made.headers["Location"] == f"/links/upload/{link['id']}"
    assert (link["max_bytes"], link["extensions"]) == (1_500_000_000, ["mp4", "mov"])
    assert link["asks_name"]
    page = member.get(made.headers["Location"], headers=HTML)
    assert link["url"] in page.text
    picture = member.get(f"/links/upload/{link['id']}/qr.svg")
    assert picture.content_type.startswith("image/svg+xml")
    assert "Films" in member.get("/links/upload", headers=HTML).text
    assert member.post(f"/links/upload/{link['id']}/close").status_code == 303
    assert "This link is closed" in member.get(made.headers["Location"], headers=HTML).text
    assert stranger.get(link["url"]).status_code == 410


def test_the_form_says_which_field_is_wrong(member: FlaskClient) -> None:
    for field, value in (("max_files", "many"), ("max_bytes", "-1"), ("extensions", "m/p/4")):
        answer = member.post("/links/upload", data={field: value, "name": "Kept"}, headers=HTML)
        assert answer.status_code == 400
        assert f'id="field-{field}-problem"' in answer.text
        assert "Kept" in answer.text
