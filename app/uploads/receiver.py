"""What the two ways of receiving files, in chunks and whole, are both built on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from app.domain.policy import UploadPolicy
from app.ingest.copy import BodyLimits
from app.records.base import UploadRecords
from app.storage.base import UploadStore
from app.uploads.completion import Completion


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
