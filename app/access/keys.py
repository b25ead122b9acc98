"""API keys: made, shown once, found again by what is stored of them, revoked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from app.access.key_format import HINT_CHARACTERS, digest_of, is_key, new_key
from app.access.recent import RECENT_SECONDS, Recent
from app.access.records.keys import USE_NOTED_EVERY, ApiKey, KeyRecords
from app.access.records.made_by import Ended
from app.core.access import Caller, CallerKind, Role
from app.core.errors import EntryNotFound, UploadError
from app.core.names import clean_name


class ApiKeys:
    """What managers do with keys, and whom a key stands for."""

    def __init__(
        self,
        records: KeyRecords,
        *,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        recent_seconds: float = RECENT_SECONDS,
    ) -> None:
        self._records = records
        self._clock = clock
        self._new_id = new_id
        self._recent = Recent(self._look_up, seconds=recent_seconds)

    def make(
        self,
        project_id: str,
        *,
        name: str,
        role: Role,
        created_by: str,
        expires_at: datetime | None = None,
    ) -> tuple[ApiKey, str]:
        """A new key: what is stored of it, and the key itself, which nobody can see again.

        It never does more than the person who made it may do at that time, or who made the key
        with which it was made, and does not outlive that key. Raises `InvalidField` for a bad name.
        """
        secret = new_key()
        key = ApiKey(
            id=self._new_id(),
            project_id=project_id,
            digest=digest_of(secret),
            hint=secret[:HINT_CHARACTERS],
            name=clean_name(name),
            role=role,
            created_by=created_by,
            created_at=self._clock(),
            expires_at=expires_at,
        )
        return self._records.add(key), secret

    def of_project(self, project_id: str) -> list[ApiKey]:
        """The keys of a project that were not revoked, the newest first."""
        keys = self._records.of_project(project_id)
        return [key for key in keys if key.revoked_at is None]

    def revoke(self, project_id: str, key_id: str) -> Ended:
        """End a key and what was made with it, and within seconds what they send.

        Returns how much was made with it; raises `EntryNotFound`.
        """
        ended = self._records.revoke(project_id, key_id, self._clock())
        if ended is None:
            raise EntryNotFound("The project has no such key.")
        self._recent.forget()
        return ended

    def caller(self, secret: str, *, anew: bool = False) -> Caller | None:
        """Who sends a request with that key; None if it does not work.

        `anew` asks the database, whatever this process remembers.
        """
        if not is_key(secret):
            return None
        key = self._recent.get(digest_of(secret), anew=anew)
        if key is None or key.role is None or not key.works(self._clock()):
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
            with suppress(UploadError):  # Programs can still delete something on a full disk.
                self._records.note_use(key.id, now)
        return key
