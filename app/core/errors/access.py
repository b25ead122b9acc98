"""What can go wrong with people, projects, keys and links."""

from __future__ import annotations

from app.core.errors.base import UploadError
from app.core.errors.uploads import ServerBusy


class NotSignedIn(UploadError):
    """Nobody knows who sends the request, and signing in would help."""

    code = "not_signed_in"
    title = "You are not signed in"
    status_hint = 401


class WrongCredentials(NotSignedIn):
    """No account has this e-mail address and this password.

    `failures` is how often the network, or the account, has failed of late.
    """

    code = "wrong_credentials"
    title = "The e-mail address or the password is wrong"

    def __init__(self, detail: str, *, failures: int = 1) -> None:
        super().__init__(detail)
        self.failures = failures


class NotAllowed(UploadError):
    """It is known who sends the request, and that they may not do this."""

    code = "not_allowed"
    title = "This is not allowed"
    status_hint = 403


class SecondFactorRequired(NotSignedIn):
    """The password is right, and a one-time code is missing."""

    code = "second_factor_required"
    title = "Enter a code too"


class SecondFactorMissing(NotAllowed):
    """The person must set up a second factor before they reach anything but their account."""

    code = "second_factor_missing"
    title = "Set up a second factor first"


class SignInRefused(NotAllowed):
    """A passkey or an answer of the OpenID provider does not sign anybody in.

    `person_id` is whose it is, where that is known.
    """

    code = "sign_in_refused"
    title = "You could not be signed in"

    def __init__(self, detail: str, *, person_id: str = "") -> None:
        super().__init__(detail)
        self.person_id = person_id


class TooManyAttempts(UploadError):
    """Too many failed sign-ins of late."""

    code = "too_many_attempts"
    title = "Too many attempts to sign in"
    status_hint = 429
    retryable = True

    def __init__(self, detail: str, *, wait_seconds: int | None = None) -> None:
        super().__init__(detail)
        self.retry_after_seconds = wait_seconds


class ProviderUnreachable(ServerBusy):
    """The OpenID provider does not answer, or is out of order."""

    code = "provider_unreachable"
    title = "The sign-in service cannot be reached"
    retry_after_seconds = 10


class LastAdministrator(UploadError):
    """Nobody would administer the server any more."""

    code = "last_administrator"
    title = "The server needs an administrator"
    status_hint = 409


class EntryNotFound(UploadError):
    """No project, member, key or webhook has this id, or none that the caller may know of."""

    code = "entry_not_found"
    title = "There is no such entry"
    status_hint = 404


class NoProject(NotAllowed):
    """It is known who sends the request, and that they are in no project."""

    code = "no_project"
    title = "You are in no project yet"


class LastManager(UploadError):
    """Nobody would manage the project any more."""

    code = "last_manager"
    title = "The project needs a manager"
    status_hint = 409


class ProjectInUse(UploadError):
    """The project has videos or uploads, or is the server's first one."""

    code = "project_in_use"
    title = "The project is in use"
    status_hint = 409


class LinkNotFound(UploadError):
    """No link has this code."""

    code = "link_not_found"
    title = "There is no such link"
    status_hint = 404


class LinkClosed(UploadError):
    """The link was closed, was used up or has expired."""

    code = "link_closed"
    title = "The link is closed"
    status_hint = 410


class LinkFull(UploadError):
    """The upload link takes no more files, or not as many bytes."""

    code = "link_full"
    title = "The link has no room for the file"
    status_hint = 413
