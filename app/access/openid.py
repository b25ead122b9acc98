"""Accounts at an OpenID provider: whose they are here, and who may join.

What is sent to the provider is in `openid_provider`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from app.access import audit
from app.access.audit import AuditAction
from app.access.creators import BY_PERSON, RevocationCounts, end_made_by
from app.access.invitations import Invitations
from app.access.people import (
    Person,
    add_person,
    admitted,
    audit_ended,
    clean_email,
    find_by_email,
    find_person,
    give_to_owner,
    remove_second_factor,
)
from app.access.sessions import PROVIDER
from app.core.access import FIRST_PROJECT, MEMBERS, Role
from app.core.errors import InvalidField, SignInRefused
from app.core.names import MAX_NAME_CHARACTERS
from app.db.context import Context, RequestContext
from app.db.tables import members, people, provider_accounts

if TYPE_CHECKING:
    from app.access.openid_provider import OpenIdProvider, ProviderIdentity


# ---- rules ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """Who may join without an invitation, and with which role."""

    roles: Mapping[str, Role] = field(default_factory=dict)
    """By group of the provider, or by domain of an e-mail address, as in `@example.org`."""

    def role_of(self, identity: ProviderIdentity) -> Role | None:
        """The highest role of a person, whose address is verified; None for an unknown one."""
        # A group that looks like a domain is none: its members may have named it.
        groups = {name for name in identity.groups if not name.startswith("@")}
        names = {f"@{identity.email.rpartition('@')[2]}", *groups}
        found = [role for name, role in self.roles.items() if name in names]
        return max(found, key=MEMBERS.index, default=None)


# ---- use cases -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A person who comes from the provider: whether for the first time, and with a new account.

    `joined` is what they are now in the projects that they have joined with that. `ended` is what
    has ended, by project, of a stranger who had an account with their address.
    """

    person: Person
    is_first: bool = False
    is_new: bool = False
    joined: Mapping[str, Role] = field(default_factory=dict)
    ended: Mapping[str, RevocationCounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpenId:
    """Signs people in whom the provider knows, and makes accounts for those who may join."""

    ctx: Context
    provider: OpenIdProvider
    invitations: Invitations
    joining: Joining

    def finish(
        self, ctx: RequestContext, response: Mapping[str, str], cookie: str, redirect_uri: str
    ) -> tuple[Person, str]:
        """Who has come back from the provider, and where they wanted to go.

        Raises as `OpenIdProvider.finish` and `sign_in` do.
        """
        identity, target = self.provider.finish(response, cookie, redirect_uri)
        return self.sign_in(ctx, identity), target

    def sign_in(self, ctx: RequestContext, identity: ProviderIdentity) -> Person:
        """Who it is here; raises `SignInRefused` for people who may not join or are blocked.

        The provider's account decides. Its e-mail address counts the first time alone, and only if
        the provider has verified it: otherwise anyone could enter another person's address.
        """
        found = provider_accounts.c
        is_it = (found.issuer == identity.issuer) & (found.subject == identity.subject)
        with ctx.database.read() as connection:
            owner = connection.execute(select(found.person_id).where(is_it)).scalar()
        try:
            if owner is None:
                arrival = self._first_time(identity)
            else:
                arrival = _Arrival(admitted(find_person(ctx, owner)))
        except SignInRefused:
            audit.note(ctx, AuditAction.SESSION_REFUSED, email=identity.email, method=PROVIDER)
            raise
        person = arrival.person
        ctx = replace(ctx, caller=person.caller)
        actor, email = ctx.caller.actor, person.email
        if arrival.is_new:
            audit.note(ctx, AuditAction.PERSON_ADDED, actor, email=email)
        for project, role in arrival.joined.items():
            added = AuditAction.MEMBER_ADDED
            audit.note(ctx, added, actor, project=project, email=email, role=role, by=PROVIDER)
        if arrival.is_first:
            audit.note(ctx, AuditAction.PROVIDER_LINKED, actor, issuer=identity.issuer)
        audit_ended(ctx, person, arrival.ended, "provider")
        return person

    def _first_time(self, identity: ProviderIdentity) -> _Arrival:
        """Connect the provider's account with the person who has its address, or with a new one.

        Where the address was not proven to be the person's, another person may have made the
        account: its password, passkeys, one-time codes and sessions end, and the keys and links
        that were made with it.
        """
        if not identity.is_email_verified:
            raise SignInRefused("The sign-in service has not verified your e-mail address.")
        person = find_by_email(self.ctx, identity.email)
        if person is None:
            return self._joined(identity)
        found = provider_accounts.c
        is_other = (found.issuer == identity.issuer) & (found.person_id == person.id)
        with self.ctx.database.read() as connection:
            has_other = connection.execute(select(found.subject).where(is_other)).first()
        if has_other:
            raise SignInRefused(f"{identity.email} belongs to another account.")
        is_stranger = (people.c.id == admitted(person).id) & ~people.c.is_proven
        ended: Mapping[str, RevocationCounts] = {}
        with self.ctx.database.write() as connection:
            self._add(connection, identity, person)
            if connection.execute(select(people.c.id).where(is_stranger)).first() is not None:
                give_to_owner(connection, person.id)
                remove_second_factor(connection, person.id)
                ended = end_made_by(connection, f"{BY_PERSON}{person.id}", self.ctx.clock())
        return _Arrival(person, is_first=True, ended=ended)

    def _joined(self, identity: ProviderIdentity) -> _Arrival:
        try:
            email = clean_email(identity.email)
        except InvalidField:
            raise SignInRefused("The sign-in service did not give your e-mail address.") from None
        name = " ".join(identity.name.split())[:MAX_NAME_CHARACTERS]
        person = Person(
            id=self.ctx.new_id(),
            email=email,
            name=name if name.isprintable() and name else email.partition("@")[0],
            created_at=self.ctx.clock(),
        )
        waiting = self.invitations.waiting(email=person.email)
        if waiting:
            # If the server stops in between, the e-mail address ties both the next time.
            joined = self.invitations.join_by_address(waiting[0], person)
            with self.ctx.database.write() as connection:
                self._add(connection, identity, person)
        elif (role := self.joining.role_of(identity)) is not None:
            joined = {FIRST_PROJECT: role}
            member = {"project_id": FIRST_PROJECT, "role": role}
            of_person = {"person_id": person.id, "added_at": person.created_at}
            with self.ctx.database.write() as connection:
                add_person(connection, person)
                connection.execute(insert(members).values(**member, **of_person))
                self._add(connection, identity, person)
        else:
            raise SignInRefused(f"{person.email} is not invited. Ask an administrator.")
        return _Arrival(person, is_first=True, is_new=True, joined=joined)

    def _add(self, connection: Connection, identity: ProviderIdentity, person: Person) -> None:
        account = {"issuer": identity.issuer, "subject": identity.subject, "person_id": person.id}
        statement = insert(provider_accounts).values(**account, created_at=self.ctx.clock())
        try:
            connection.execute(statement)
        except IntegrityError:  # Another request has just stored it.
            raise SignInRefused("Sign in once more.") from None
