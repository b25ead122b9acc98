"""What the two ways of receiving files, in chunks and whole, are both built on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime

from app.domain.policy import UploadPolicy
from app.ingest.copy import BodyLimits
from app.records.uploads import UploadRecords
from app.storage.base import UploadStore
from app.uploads.completion import Completion


def derived_key(purpose: str, *facts: object) -> str:
    """A client key made of what tells a file from all others of its owner.

    The records give a key to one upload only, so of several requests at once one makes it.
    """
    text = "\0".join(str(fact) for fact in facts)
    return f"{purpose}:{hashlib.sha256(text.encode()).hexdigest()}"


class Receiver:
    """Holds where bytes and facts go, the operator's limits, and the sources of time and ids."""

    def __init__(  # noqa: PLR0913 - called by the composition root alone, with names
        self,
        records: UploadRecords,
        store: UploadStore,
        completion: Completion,
        *,
        policy: UploadPolicy,
        limits: BodyLimits,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._records = records
        self._store = store
        self._completion = completion
        self._policy = policy
        self._limits = limits
        self._clock = clock
        self._new_id = new_id
