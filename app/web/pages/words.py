"""Words that several pages have in common."""

from __future__ import annotations

from app.core.access import Role

ROLES = (
    (Role.VIEWER, "Viewer: watches, downloads"),
    (Role.UPLOADER, "Uploader: also uploads"),
    (Role.EDITOR, "Editor: also changes, shares"),
    (Role.MANAGER, "Manager: also manages members"),
)
"""The roles of members, and what each may do; the list of members has the first word."""
