"""API keys: made, shown once, found again by what is stored of them, revoked."""

from __future__ import annotations

import hashlib
import secrets
import string
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from zlib import crc32

from sqlalchemy import Connection, Row, case, func, null, or_, select, update

from app.access import audit
from app.access.audit import AuditAction
from app.access.creators import BY_KEY, BY_PERSON, RevocationCounts, end_made_with, require_role
from app.access.recent import RECENT_SECONDS, Recent
from app.core.access import Caller, CallerKind, Role, lower_of
from app.core.errors import EntryNotFound, UploadError
from app.core.names import clean_name
from app.db.context import Context, RequestContext
from app.db.sql import insert_row
from app.db.tables import api_keys, members, people

# ---- the form of a key ---------------------------------------------------------------------------

# The form of API keys: `sluice_`, 256 random bits and a checksum, in letters and digits.
#
# The prefix and the checksum let scanners of source code find keys that were published by mistake,
# without asking the server (as GitHub's tokens do, which have the same form).


PREFIX = "sluice_"

SECRET_BYTES = 32

HINT_CHARACTERS = len(PREFIX) + 4
"""How many characters of a key lists show."""

_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase

_SECRET_CHARACTERS = 43
"""62 to this power is above 2 to the power of 256."""

_CHECKSUM_CHARACTERS = 6


def new_key() -> str:
    """A new random key."""
    secret = _in_base_62(secrets.randbits(8 * SECRET_BYTES), _SECRET_CHARACTERS)
    return f"{PREFIX}{secret}{_checksum(secret)}"


def is_key(text: str) -> bool:
    """Whether `text` has the form of a key and the right checksum; the server may not know it."""
    secret, checksum = text[len(PREFIX) : -_CHECKSUM_CHARACTERS], text[-_CHECKSUM_CHARACTERS:]
    is_long_enough = len(secret) == _SECRET_CHARACTERS and text.isascii()
    return text.startswith(PREFIX) and is_long_enough and checksum == _checksum(secret)


def digest_of(secret: str) -> str:
    """What is stored of a key, or of any other random secret: its SHA-256 in hexadecimal.

    A slow hash would protect a guessable password; 256 random bits need none.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def _checksum(secret: str) -> str:
    return _in_base_62(crc32(secret.encode()), _CHECKSUM_CHARACTERS)


def _in_base_62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


# ---- rows ----------------------------------------------------------------------------------------

USE_NOTED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key of a project; the key itself is not kept, only its SHA-256.

    `role` is the one it was given, or that of the person who made it where that is lower by now;
    None if they have none in the project any more. `created_by` is that person, also for
    a key that was made with another one, `made_with`.
    """

    id: str
    project_id: str
    digest: str
    hint: str
    name: str
    role: Role | None
    created_by: str
    created_at: datetime
    made_with: str | None = None
    expires_at: datetime | None = None
    used_at: datetime | None = None
    revoked_at: datetime | None = None

    def works(self, now: datetime) -> bool:
        """Whether it was neither revoked nor has expired, and its maker has a role."""
        is_valid = self.revoked_at is None and self.role is not None
        return is_valid and (self.expires_at is None or now < self.expires_at)


_MAKER_ROLE = case(
    (people.c.is_blocked, null()),
    (people.c.is_admin, Role.MANAGER.value),
    else_=members.c.role,
)
"""What the person who made a key may do in its project now; administrators manage every one."""

_KEYS = (
    select(api_keys, _MAKER_ROLE.label("maker_role"))
    .outerjoin(people, people.c.id == func.substr(api_keys.c.created_by, len(BY_PERSON) + 1))
    .outerjoin(
        members,
        (members.c.person_id == people.c.id) & (members.c.project_id == api_keys.c.project_id),
    )
)


def _with_maker(connection: Connection, key: ApiKey) -> ApiKey:
    """The key with the person behind it; it expires no later than the key it was made with."""
    if not key.created_by.startswith(BY_KEY):
        return key
    made_with = key.created_by.removeprefix(BY_KEY)
    query = select(api_keys.c.created_by, api_keys.c.expires_at).where(api_keys.c.id == made_with)
    found = connection.execute(query).one()
    ends = [each for each in (key.expires_at, found.expires_at) if each is not None]
    return replace(
        key, created_by=found.created_by, made_with=made_with, expires_at=min(ends, default=None)
    )


def _key(row: Row[Any]) -> ApiKey:
    values = dict(row._mapping)
    given, most = Role(values["role"]), values.pop("maker_role")
    if not row.created_by.startswith(BY_PERSON):
        return ApiKey(**{**values, "role": given})
    return ApiKey(**{**values, "role": None if most is None else lower_of(given, Role(most))})


# ---- use cases -----------------------------------------------------------------------------------


class ApiKeys:
    """What managers do with keys, and whom a key stands for; remembers the latter for a moment."""

    def __init__(self, ctx: Context, *, recent_seconds: float = RECENT_SECONDS) -> None:
        self._ctx = ctx
        self._recent = Recent(self._look_up, seconds=recent_seconds)

    def make(
        self, ctx: RequestContext, *, name: str, role: Role, expires_at: datetime | None = None
    ) -> tuple[ApiKey, str]:
        """A new key: what is stored of it, and the key itself, which cannot be shown again.

        It never does more than the person who made it may do at that time, or who made the key
        with which it was made, and does not outlive that key. Raises `InvalidField` for a bad name,
        and `NotAllowed` if its maker has no role in the project any more.
        """
        secret = new_key()
        key = ApiKey(
            id=ctx.new_id(),
            project_id=ctx.project,
            digest=digest_of(secret),
            hint=secret[:HINT_CHARACTERS],
            name=clean_name(name),
            role=role,
            created_by=ctx.caller.sender or ctx.caller.name,
            created_at=ctx.clock(),
            expires_at=expires_at,
        )
        with ctx.database.write() as connection:
            require_role(connection, key.created_by, key.project_id)
            key = _with_maker(connection, key)
            insert_row(connection, api_keys, key)
        action, subject, project = AuditAction.KEY_MADE, f"key:{key.id}", key.project_id
        audit.note(ctx, action, subject, project=project, name=key.name, role=key.role)
        return key, secret

    def of_project(self, ctx: RequestContext) -> list[ApiKey]:
        """The keys of the project that were not revoked, the newest first."""
        is_ours = (api_keys.c.project_id == ctx.project) & api_keys.c.revoked_at.is_(None)
        query = _KEYS.where(is_ours).order_by(api_keys.c.created_at.desc(), api_keys.c.id)
        with ctx.database.read() as connection:
            return [_key(row) for row in connection.execute(query)]

    def revoke(self, ctx: RequestContext, key_id: str) -> RevocationCounts:
        """End a key and what was made with it, and within seconds what they send.

        Returns how much was made with it; raises `EntryNotFound` if the project has no such key
        that worked.
        """
        now, is_it = ctx.clock(), api_keys.c.id == key_id
        change = update(api_keys).where(
            is_it, api_keys.c.project_id == ctx.project, api_keys.c.revoked_at.is_(None)
        )
        with ctx.database.write() as connection:
            if connection.execute(change.values(revoked_at=now)).rowcount != 1:
                raise EntryNotFound("The project has no such key.")
            ended = end_made_with(connection, key_id, now)
            name = connection.execute(select(api_keys.c.name).where(is_it)).scalar_one()
        self._recent.forget()
        action, subject = AuditAction.KEY_REVOKED, f"key:{key_id}"
        audit.note(ctx, action, subject, project=ctx.project, name=name, **asdict(ended))
        return ended

    def caller(self, secret: str, *, fresh: bool = False) -> Caller | None:
        """Who sends a request with that key; None if it does not work.

        `fresh` bypasses this process's cache.
        """
        if not is_key(secret):
            return None
        key = self._recent.get(digest_of(secret), fresh=fresh)
        if key is None or key.role is None or not key.works(self._ctx.clock()):
            return None
        return Caller(
            kind=CallerKind.KEY,
            id=key.id,
            name=key.name,
            project=key.project_id,
            roles={key.project_id: key.role},
        )

    def _look_up(self, digest: str) -> ApiKey | None:
        with self._ctx.database.read() as connection:
            row = connection.execute(_KEYS.where(api_keys.c.digest == digest)).first()
        key, now = None if row is None else _key(row), self._ctx.clock()
        if key is None or not key.works(now):
            return None
        if key.used_at is None or now - key.used_at > USE_NOTED_EVERY:
            with suppress(UploadError):  # Programs can still delete something on a full disk.
                used_at = api_keys.c.used_at  # Another process may have noted it just now.
                is_due = or_(used_at.is_(None), used_at < now - USE_NOTED_EVERY)
                change = update(api_keys).where(api_keys.c.id == key.id, is_due)
                with self._ctx.database.write() as connection:
                    connection.execute(change.values(used_at=now))
        return key
