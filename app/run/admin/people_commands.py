"""`flask --app wsgi users`: people, for whoever can log in to the machine."""

from __future__ import annotations

import sys
from typing import Any

import click

from app.access.accounts import clean_email
from app.access.records.people import Person
from app.core.access import FIRST_PROJECT, MEMBERS, Caller, CallerKind, Role
from app.core.audit import AuditAction
from app.core.moments import instant
from app.run.admin.opening import OperatorGroup, open_library
from app.run.admin.printing import as_json, print_rows

OPERATOR = Caller(kind=CallerKind.LOCAL, name="operator")
"""Whom the audit log names."""

NO_ROLE = "none"

users = OperatorGroup("users", help="People with an account.")


@users.command("list")
@as_json
def list_people(is_json: bool) -> None:
    """Show everybody."""
    rows = list(map(_row, open_library().identity.people.all()))
    print_rows(rows, _line, is_json=is_json)


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
    identity = open_library().identity
    password = sys.stdin.readline().rstrip("\r\n") if reads_password else None
    person = identity.accounts.add(email, name=name, password=password, is_admin=is_admin)
    role = role or (Role.MANAGER if is_admin else Role.UPLOADER)
    if role != NO_ROLE:
        identity.projects.add_member(FIRST_PROJECT, person.email, Role(role))
    _note(AuditAction.PERSON_ADDED, person)
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
    person = open_library().identity.accounts.change_email(_person(email), new_email)
    _note(AuditAction.PERSON_CHANGED, person, change="email", was=clean_email(email))
    click.echo(f"changed {clean_email(email)} to {person.email}")


@users.command("block")
@click.argument("email")
def block(email: str) -> None:
    """Sign a person out everywhere, and let them in no more."""
    person = _person(email)
    identity = open_library().identity
    ended = identity.accounts.block(person)
    identity.audit.note_ended(person, ended, change="block", caller=OPERATOR)
    _note(AuditAction.PERSON_CHANGED, person, change="block")
    click.echo(f"blocked {person.email}")


@users.command("unblock")
@click.argument("email")
def unblock(email: str) -> None:
    """Let a person sign in again."""
    person = _person(email)
    open_library().identity.accounts.unblock(person)
    _note(AuditAction.PERSON_CHANGED, person, change="unblock")
    click.echo(f"unblocked {person.email}")


@users.command("remove-codes")
@click.argument("email")
def remove_codes(email: str) -> None:
    """Remove a person's one-time codes; their password alone is enough then."""
    person = _person(email)
    open_library().identity.second_factors.remove(person.id)
    _note(AuditAction.FACTOR_REMOVED, person)
    click.echo(f"removed the one-time codes of {person.email}")


def _print_link(person: Person) -> None:
    services = open_library()
    code = services.identity.invitations.to_reset(person, by="")
    _note(AuditAction.PASSWORD_LINK_MADE, person)
    click.echo(f"{services.settings.link_url}/reset/{code}")


def _person(email: str) -> Person:
    person = open_library().identity.people.find_by_email(clean_email(email))
    if person is None:
        raise click.ClickException(f"Nobody has the address {email}.")
    return person


def _note(action: AuditAction, person: Person, **details: str) -> None:
    found = {"email": person.email, **details}
    audit = open_library().identity.audit
    audit.note(action, f"person:{person.id}", caller=OPERATOR, details=found)


def _row(person: Person) -> dict[str, Any]:
    return {
        "id": person.id,
        "email": person.email,
        "name": person.name,
        "is_admin": person.is_admin,
        "is_blocked": person.is_blocked,
        "added": instant(person.created_at),
    }


def _line(row: dict[str, Any]) -> str:
    marks = [word for word, key in (("admin", "is_admin"), ("blocked", "is_blocked")) if row[key]]
    return f"{row['email']:<32} {row['name']:<24} {' '.join(marks)}".rstrip()
