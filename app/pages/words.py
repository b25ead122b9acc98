"""Words that several pages have in common."""

from __future__ import annotations

from app.domain.access import Role

ROLES = (
    (Role.VIEWER, "Viewer: watches and downloads"),
    (Role.UPLOADER, "Uploader: also uploads, and changes own videos"),
    (Role.EDITOR, "Editor: also changes all videos, and makes links"),
    (Role.MANAGER, "Manager: also manages members, keys and webhooks"),
)
"""The roles of members, and what each may do; the list of members has the first word."""
