"""`flask users`, run through Flask's own CLI."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from click.testing import Result

from app.access.people import Person, find_by_email, roles_of
from app.core.access import ANONYMOUS, LOCAL, Role
from tests.run.admin.test_commands import Operator

PASSWORD = "three grey geese marching"
LINK = re.compile(r"^http://127\.0\.0\.1:8000/reset/([\w-]{32})$", re.MULTILINE)


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    operator = Operator(tmp_path_factory.mktemp("operator"))
    yield operator
    operator.services.database.close()


def person(operator: Operator, email: str) -> Person:
    found = find_by_email(operator.services.context, email)
    assert found is not None
    return found


def roles(operator: Operator, email: str) -> dict[str, Role]:
    with operator.services.database.read() as connection:
        return dict(roles_of(connection, person(operator, email).id))


def add(operator: Operator, *arguments: str, password: str = PASSWORD) -> Result:
    runner = operator.app.test_cli_runner()
    return runner.invoke(
        args=["users", "add", *arguments, "--password-stdin"], input=f"{password}\n"
    )


def test_the_first_administrator_needs_no_browser(operator: Operator) -> None:
    result = add(operator, "Root@example.org", "--admin", "--name", "Root")
    assert (result.exit_code, result.stdout) == (0, "added root@example.org\n")
    root = person(operator, "root@example.org")
    assert (root.name, root.is_admin) == ("Root", True)
    assert roles(operator, root.email) == {"local": Role.MANAGER}
    sign_in, ctx = operator.services.identity.sign_in, operator.services.context.acting(LOCAL)
    assert sign_in.with_password(ctx, root.email, PASSWORD, device="") == root


def test_without_a_password_the_person_gets_a_link(operator: Operator) -> None:
    result = operator.run("users", "add", "bob@example.org", "--role", "viewer")
    found = LINK.search(result.stdout)
    assert found
    chosen = operator.services.identity.invitations.choose_password(
        operator.services.context.acting(ANONYMOUS), found[1], PASSWORD
    )
    assert chosen.email == "bob@example.org"
    assert roles(operator, chosen.email) == {"local": Role.VIEWER}


def test_a_link_for_a_new_password_is_printed(operator: Operator) -> None:
    add(operator, "carl@example.org")
    assert LINK.search(operator.run("users", "reset", "CARL@example.org").stdout)
    assert roles(operator, "carl@example.org") == {"local": Role.UPLOADER}


def test_a_person_gets_another_address(operator: Operator) -> None:
    add(operator, "eve@example.org")
    assert operator.run("users", "email", "eve@example.org", "Eve@example.net").exit_code == 0
    assert person(operator, "eve@example.net").name == "eve"
    assert operator.run("users", "email", "eve@example.org", "x@example.net").exit_code == 1


def test_people_are_blocked_and_let_in_again(operator: Operator) -> None:
    add(operator, "dora@example.org", "--role", "none")
    assert operator.run("users", "block", "dora@example.org").exit_code == 0
    assert person(operator, "dora@example.org").is_blocked
    assert re.search(
        r"^dora@example\.org +dora +blocked$", operator.run("users", "list").stdout, re.MULTILINE
    )
    operator.run("users", "unblock", "dora@example.org")
    (row,) = [row for row in operator.json("users", "list") if row["name"] == "dora"]
    assert (row["is_blocked"], row["is_admin"]) == (False, False)


def test_the_operator_removes_codes_of_a_lost_device(operator: Operator) -> None:
    add(operator, "lost@example.org", "--role", "none")
    ran = operator.run("users", "remove-codes", "lost@example.org")
    assert "removed the one-time codes of lost@example.org" in ran.stdout
    assert operator.run("users", "remove-codes", "x@example.org").exit_code == 1


@pytest.mark.parametrize(
    ("email", "password", "message"),
    [
        ("not an address", PASSWORD, "Enter an e-mail address"),
        ("eve@example.org", "short", "at least 10 characters"),
        ("eve@example.org", "password12", "easy to guess"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_line(
    operator: Operator, email: str, password: str, message: str
) -> None:
    result = add(operator, email, password=password)
    assert (result.exit_code, message in result.stderr) == (1, True)


def test_nobody_is_added_twice_and_nobody_unknown_is_changed(operator: Operator) -> None:
    add(operator, "fred@example.org")
    assert "Another account" in add(operator, "fred@example.org").stderr
    for command in ("block", "unblock", "reset"):
        result = operator.run("users", command, "nobody@example.org")
        assert (result.exit_code, "There is no person with the address" in result.stderr) == (
            1,
            True,
        )
