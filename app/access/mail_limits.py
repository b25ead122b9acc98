"""How much mail people and keys may have the server send."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime

from app.access.password_checks import in_words
from app.access.records.attempts import AttemptRecords, Patience
from app.core.errors import TooManyRequests

OF_SENDER = Patience(free=30)
"""Messages of a person or a key, of about a day."""

OF_PROJECT = Patience(free=60)
"""Messages of a project: whoever manages it can make any number of keys."""


class MailLimits:
    """Counts messages by who has them sent, and for which project."""

    def __init__(self, records: AttemptRecords, *, clock: Callable[[], datetime]) -> None:
        self._records = records
        self._clock = clock

    def count(self, sender: str, project_id: str | None) -> None:
        """Count a message; raises `TooManyRequests` for one too many."""
        subjects = {f"mail:{sender}": OF_SENDER}
        if project_id is not None:
            subjects[f"mail:project:{project_id}"] = OF_PROJECT
        if wait := self._records.count_unless_waiting(subjects, self._clock()):
            seconds = math.ceil(wait.total_seconds())
            error = TooManyRequests(f"That is much mail. Try again in {in_words(seconds)}.")
            error.retry_after_seconds = seconds
            raise error
