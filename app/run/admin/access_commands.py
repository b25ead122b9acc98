"""The operator's commands for people, projects and keys."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from app.access.people import Person, all_people, clean_email, find_by_email
from app.access.projects import parse_limits
from app.core.access import FIRST_PROJECT, LOCAL, MEMBERS, Role, Scope
from app.core.moments import instant, parse_expiry
from app.core.numbers import bytes_in_words, parse_bytes
from app.http.documents import key_document
from app.run.admin.opening import (
    OperatorGroup,
    as_json,
    as_operator,
    open_library,
    print_one,
    print_rows,
)

NO_ROLE = "none"

users = OperatorGroup("users", help="People with an account.")


@users.command("list")
@as_json
def list_people(is_json: bool) -> None:
    """Show all people."""
    rows = list(map(_row, all_people(open_library().context)))
    print_rows(rows, _person_line, is_json=is_json)


@users.command("add")
@click.argument("email")
@click.option("--name", default="", help="What others see; by default what is before the @.")
@click.option("--admin", "is_admin", is_flag=True, help="Let them administer the server.")
@click.option(
    "--role",
    type=click.Choice([*(role.value for role in MEMBERS), NO_ROLE]),
    help="In the first project; by default uploader, or manager with --admin.",
)
@click.option("--password-stdin", "reads_password", is_flag=True, help="Read the password.")
def add(email: str, name: str, is_admin: bool, role: str | None, reads_password: bool) -> None:
    """Add a person; without --password-stdin, print a link by which they choose a password."""
    identity, ctx = open_library().identity, as_operator()
    password = sys.stdin.readline().rstrip("\r\n") if reads_password else None
    person = identity.accounts.add(ctx, email, name=name, password=password, is_admin=is_admin)
    role = role or (Role.MANAGER if is_admin else Role.UPLOADER)
    if role != NO_ROLE:
        identity.projects.add_member(ctx, FIRST_PROJECT, person.email, Role(role))
    click.echo(f"added {person.email}")
    if password is None:
        _print_link(person)


@users.command("reset")
@click.argument("email")
def reset(email: str) -> None:
    """Print a link by which a person chooses another password; it works once, for a day."""
    _print_link(_person(email))


@users.command("email")
@click.argument("email")
@click.argument("new_email")
def change_email(email: str, new_email: str) -> None:
    """Give a person another address; make sure that it is theirs."""
    ctx = as_operator()
    person = open_library().identity.accounts.change_email(ctx, _person(email), new_email)
    click.echo(f"changed {clean_email(email)} to {person.email}")


@users.command("block")
@click.argument("email")
def block(email: str) -> None:
    """Sign a person out everywhere, and let them in no more."""
    person = _person(email)
    open_library().identity.accounts.block(as_operator(), person)
    click.echo(f"blocked {person.email}")


@users.command("unblock")
@click.argument("email")
def unblock(email: str) -> None:
    """Let a person sign in again."""
    person = _person(email)
    open_library().identity.accounts.unblock(as_operator(), person)
    click.echo(f"unblocked {person.email}")


@users.command("remove-codes")
@click.argument("email")
def remove_codes(email: str) -> None:
    """Remove a person's one-time codes; their password alone is enough then."""
    person = _person(email)
    open_library().identity.second_factors.remove(as_operator(), person)
    click.echo(f"removed the one-time codes of {person.email}")


def _print_link(person: Person) -> None:
    services = open_library()
    code = services.identity.invitations.to_reset(as_operator(), person)
    click.echo(f"{services.settings.link_url}/reset/{code}")


def _person(email: str) -> Person:
    person = find_by_email(open_library().context, clean_email(email))
    if person is None:
        raise click.ClickException(f"There is no person with the address {email}.")
    return person


def _row(person: Person) -> dict[str, Any]:
    return {
        "id": person.id,
        "email": person.email,
        "name": person.name,
        "is_admin": person.is_admin,
        "is_blocked": person.is_blocked,
        "added": instant(person.created_at),
    }


def _person_line(row: dict[str, Any]) -> str:
    marks = [word for word, key in (("admin", "is_admin"), ("blocked", "is_blocked")) if row[key]]
    return f"{row['email']:<32} {row['name']:<24} {' '.join(marks)}".rstrip()


# ---- project commands ----------------------------------------------------------------------------

# `flask projects` and `flask keys`: the functions of the pages, for operators with shell access.


projects = OperatorGroup("projects", help="Projects, which own uploads and videos.")
keys = OperatorGroup("keys", help="API keys of programs.")

T = TypeVar("T")

in_project = click.option(
    "--project", "project_id", default=FIRST_PROJECT, show_default=True, metavar="ID"
)


@projects.command("list")
@as_json
def list_projects(is_json: bool) -> None:
    """Show the projects, by name."""
    rows = [
        {"id": found.id, "name": found.name, "used_bytes": found.used_bytes}
        for found in open_library().identity.projects.of(LOCAL)
    ]
    print_rows(
        rows,
        lambda row: f"{row['id']:32}  {bytes_in_words(row['used_bytes']):>12}  {row['name']}",
        is_json=is_json,
    )


@projects.command("add")
@click.argument("name")
@click.option("--manager", metavar="EMAIL", help="Who manages it; they need an account.")
@as_json
def add_project(name: str, manager: str | None, is_json: bool) -> None:
    """Make a project."""
    person = None if manager is None else _person(manager)
    made = open_library().identity.projects.make(
        as_operator(), name, manager=None if person is None else person.id
    )
    print_one({"id": made.id, "name": made.name}, is_json=is_json)


@projects.command("set")
@click.argument("project_id", metavar="ID")
@click.option("--quota", metavar="SIZE", help="As in 50GB; `none` for no limit.")
@click.option("--keep-videos", metavar="DAYS", help="How long; `none` for ever.")
@as_json
def set_limits(project_id: str, quota: str | None, keep_videos: str | None, is_json: bool) -> None:
    """Limit how much a project holds, and for how long."""
    limits: dict[str, object] = {}
    if quota is not None:
        limits["quota_bytes"] = _unless_none(quota, parse_bytes)
    if keep_videos is not None:
        limits["video_seconds"] = _unless_none(keep_videos, _seconds_of_days)
    if not limits:
        raise click.UsageError("Say --quota or --keep-videos.")
    ctx = as_operator()
    projects = open_library().identity.projects
    project = projects.change(ctx, project_id, limits=parse_limits(limits))
    row = {
        "id": project.id,
        "used_bytes": project.used_bytes,
        "quota_bytes": project.quota_bytes,
        "video_seconds": project.video_seconds,
    }
    print_one(row, is_json=is_json)


@projects.command("recount")
@as_json
def recount(is_json: bool) -> None:
    """Count again how many bytes the projects use, and say where the count was wrong."""
    wrong = open_library().quotas.recount()
    rows = [{"id": name, "was": was, "is": right} for name, (was, right) in wrong.items()]
    print_rows(rows, lambda row: f"{row['id']}  {row['was']} is {row['is']}", is_json=is_json)
    if not is_json:
        click.echo(f"{len(rows)} counts were wrong")


@keys.command("list")
@in_project
@as_json
def list_keys(project_id: str, is_json: bool) -> None:
    """Show the keys of a project that were not revoked, the newest first."""
    rows: list[dict[str, Any]] = [
        {**key_document(key)}
        for key in open_library().identity.keys.of_project(as_operator(Scope(project_id)))
    ]
    print_rows(rows, _key_line, is_json=is_json)


@keys.command("add")
@in_project
@click.option("--role", type=click.Choice([role.value for role in MEMBERS]), required=True)
@click.option("--name", required=True, help="What the key is for.")
@click.option("--expires", metavar="SECONDS|TIME", help="From now, or a time such as 2030-01-31.")
@as_json
def add_key(project_id: str, role: str, name: str, expires: str | None, is_json: bool) -> None:
    """Make a key and print it; it cannot be seen again."""
    identity = open_library().identity
    project = identity.projects.get(project_id)
    number = float(expires) if expires and expires.replace(".", "", 1).isdecimal() else None
    key, secret = identity.keys.make(
        as_operator(Scope(project.id)),
        name=name,
        role=Role(role),
        expires_at=parse_expiry(number or expires, datetime.now(UTC)),
    )
    if is_json:
        print_one({**key_document(key), "key": secret}, is_json=True)
    else:
        click.echo(secret)


@keys.command("revoke")
@click.argument("key_id", metavar="ID")
@in_project
def revoke_key(key_id: str, project_id: str) -> None:
    """End a key; what it is sending ends within seconds."""
    open_library().identity.keys.revoke(as_operator(Scope(project_id)), key_id)
    click.echo(f"revoked {key_id}")


def _unless_none(text: str, parse: Callable[[str], T]) -> T | None:
    if text == "none":
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _seconds_of_days(text: str) -> float:
    return float(text) * 86_400


def _key_line(row: dict[str, Any]) -> str:
    used = f"used {row['used']}" if row["used"] else "never used"
    return f"{row['id']}  {row['role']:8}  {row['hint']}…  {used}  {row['name']}"
