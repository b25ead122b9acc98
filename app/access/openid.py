"""What is agreed with an OpenID provider, and what it says about people."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.access import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdClient:
    """What the operator has agreed with the provider; `name` is what people call it."""

    issuer: str
    client_id: str
    client_secret: str
    name: str
    asks_groups: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderIdentity:
    """Somebody as the provider knows them. `subject` stays; all else may change."""

    issuer: str
    subject: str
    email: str = ""
    is_email_verified: bool = False
    name: str = ""
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """Whom the operator lets in without an invitation, and the role they get.

    `domains` are those of e-mail addresses, `groups` those that the provider tells of; either is
    enough. Without any, nobody joins so.
    """

    domains: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    role: Role = Role.UPLOADER

    def admits(self, identity: ProviderIdentity) -> bool:
        """Whether it lets this person in, whose e-mail address is verified."""
        domain = identity.email.rpartition("@")[2]
        return domain in self.domains or bool(identity.groups & self.groups)
