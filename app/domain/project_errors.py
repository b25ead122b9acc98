"""What can go wrong with projects, members and keys; the tree is in `errors.py`."""

from __future__ import annotations

from app.domain.errors import NotAllowed, UploadError


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
