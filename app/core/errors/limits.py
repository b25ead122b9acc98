"""What can go wrong with limits: what projects may hold, and what one sender may ask for."""

from __future__ import annotations

from app.core.errors.base import UploadError
from app.core.errors.uploads import NoRoom, TooLarge
from app.core.numbers import bytes_in_words


class LargerThanQuota(TooLarge):
    """The file would not even fit if the project were empty."""

    code = "larger_than_quota"
    title = "The file is larger than the project may be"


class QuotaExceeded(NoRoom):
    """The project has less left of its quota than the file needs."""

    code = "quota_exceeded"
    title = "The project has not enough space left"


class TooMuchReserved(NoRoom):
    """The sender has begun uploads for so many bytes that no further ones fit."""

    code = "too_much_reserved"
    title = "Too many bytes are on their way"


class TooManyRequests(UploadError):
    """The caller sends more requests a minute than it may."""

    code = "too_many_requests"
    title = "Too many requests"
    status_hint = 429
    retryable = True


class TooManyUploads(TooManyRequests):
    """The sender has as many unfinished uploads as it may have."""

    code = "too_many_uploads"
    title = "Too many uploads are on their way"
    retry_after_seconds = 10


def over_quota(length: int, *, left: int, quota: int) -> QuotaExceeded | LargerThanQuota:
    """The error for a file of `length` bytes where a project has `left` of `quota` bytes."""
    error: QuotaExceeded | LargerThanQuota
    if length > quota:
        error = LargerThanQuota(
            f"The file has {bytes_in_words(length)}; all files together may have "
            f"{bytes_in_words(quota)}."
        )
    else:
        error = QuotaExceeded(
            f"The file needs {bytes_in_words(length)}, but of {bytes_in_words(quota)} only "
            f"{bytes_in_words(left)} are left."
        )
    error.members = {"left": left, "quota": quota}
    return error


def too_many(what: str, limit: int, *, wait_seconds: int) -> TooManyRequests:
    """The error for a caller that has done something more often than `limit` times a minute."""
    error = TooManyRequests(f"At most {limit} {what} a minute; go on in {wait_seconds} seconds.")
    error.retry_after_seconds = wait_seconds
    return error
