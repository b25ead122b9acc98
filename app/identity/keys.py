"""API keys: made, shown once, found again by what is stored of them, revoked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from app.domain.access import Caller, CallerKind, Role
from app.identity.key_format import HINT_CHARACTERS, digest_of, is_key, new_key
from app.identity.recent import Recent
from app.records.identity.keys import USE_NOTED_EVERY, ApiKey, KeyRecords


class ApiKeys:
    """What managers do with keys, and whom a key stands for."""

    def __init__(
        self,
        records: KeyRecords,
        *,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._records = records
        self._clock = clock
        self._new_id = new_id
        self._recent = Recent(self._look_up)

    def make(
        self,
        project_id: str,
        *,
        name: str,
        role: Role,
        created_by: str,
        lifetime: timedelta | None = None,
    ) -> tuple[ApiKey, str]:
        """A new key: what is stored of it, and the key itself, which nobody can see again."""
        secret, now = new_key(), self._clock()
        key = ApiKey(
            id=self._new_id(),
            project_id=project_id,
            digest=digest_of(secret),
            hint=secret[:HINT_CHARACTERS],
            name=name,
            role=role,
            created_by=created_by,
            created_at=now,
            expires_at=None if lifetime is None else now + lifetime,
        )
        self._records.add(key)
        return key, secret

    def revoke(self, project_id: str, key_id: str) -> bool:
        """End a key, and within seconds what it sends; whether the project had such a key."""
        was_revoked = self._records.revoke(project_id, key_id, self._clock())
        self._recent.forget()
        return was_revoked

    def caller(self, secret: str) -> Caller | None:
        """Who sends a request with that key; None if it does not work."""
        if not is_key(secret):
            return None
        key = self._recent.get(digest_of(secret))
        if key is None or not key.works(self._clock()):
            return None
        return Caller(
            kind=CallerKind.KEY,
            id=key.id,
            name=key.name,
            project=key.project_id,
            roles={key.project_id: key.role},
        )

    def _look_up(self, digest: str) -> ApiKey | None:
        key, now = self._records.find(digest), self._clock()
        if key is None or not key.works(now):
            return None
        if key.used_at is None or now - key.used_at > USE_NOTED_EVERY:
            self._records.note_use(key.id, now)
        return key
