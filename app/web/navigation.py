"""The navigation bar of every page: its entries, and the current one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flask import Blueprint, g, request, url_for

from app.core.access import Action, Caller, CallerKind, Reach, Role, reach_of
from app.http.access import PROJECT, who_sees

blueprint = Blueprint("navigation", __name__)
blueprint.app_context_processor(lambda: {"navigation": navigation})

Current = Literal["page", "true"] | None
"""The value of `aria-current`: this page, a page below it, or neither."""

OF_BLUEPRINTS = {
    "pages": ("Library", "pages.index"),
    "links": ("Links", "links.index"),
    "upload_links": ("Links", "upload_links.index"),
    "project": ("Project", "project.show"),
    "webhooks": ("Project", "webhooks.index"),
    "audit": ("Project", "audit.index"),
    "people": ("Server", "people.index"),
    "projects": ("Server", "projects.index"),
    "status": ("Server", "status.page"),
}
"""The area of each blueprint with pages, and the view of its tab."""

OF_VIEWS = {
    "project.keys": ("Project", "project.keys"),
    "project.make_key": ("Project", "project.keys"),
}
"""Views that belong to a different tab than the rest of their blueprint."""


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """A link of the bar, and the tabs below it."""

    name: str
    url: str
    current: Current
    tabs: tuple[MenuEntry, ...] = ()


def navigation() -> tuple[MenuEntry, ...]:
    """Entries that the current principal may visit; none if they must sign in first.

    Kept for the request: the bar and the tabs of a page both need them.
    """
    if "navigation" not in g:
        g.navigation = _entries(who_sees(request))
    entries: tuple[MenuEntry, ...] = g.navigation
    return entries


def _entries(caller: Caller) -> tuple[MenuEntry, ...]:
    if caller.kind is CallerKind.NOBODY or caller.needs_second_factor:
        return ()
    areas = [_area("Library", [("Library", "pages.index", url_for("pages.index"))])]
    if reach_of(Action.SHARE, caller.role) is not Reach.NONE:
        areas.append(
            _area(
                "Links",
                [
                    ("Share", "links.index", url_for("links.index")),
                    ("Receive", "upload_links.index", url_for("upload_links.index")),
                ],
            )
        )
    if caller.is_manager:
        areas.append(_area("Project", _project_tabs(caller)))
    if caller.is_admin:
        areas.append(_area("Server", _server_tabs(caller)))
    return tuple(areas)


def _project_tabs(caller: Caller) -> list[tuple[str, str, str]]:
    # Administrators see the audit log of the whole server, unless the URL names a project.
    of_project = {"project": caller.project} if caller.is_admin else {}
    log = url_for("audit.index", _external=False, **of_project)
    return [
        ("Members", "project.show", url_for("project.show")),
        ("Keys", "project.keys", url_for("project.keys")),
        ("Webhooks", "webhooks.index", url_for("webhooks.index")),
        ("Log", "audit.index", log),
    ]


def _server_tabs(caller: Caller) -> list[tuple[str, str, str]]:
    people = [
        ("People", "people.index", url_for("people.index")),
        ("Projects", "projects.index", url_for("projects.index")),
    ]
    return [
        ("Status", "status.page", url_for("status.page")),
        *(people if caller.kind is CallerKind.PERSON else []),
        ("Log", "audit.index", url_for("audit.index", project=None)),
    ]


def _area(name: str, pages: list[tuple[str, str, str]]) -> MenuEntry:
    """An entry whose tabs are these pages, each with view and URL; a single page has no tabs."""
    area, view = _here()
    tabs = tuple(
        MenuEntry(page, url, _current(view, of_page) if area == name else None)
        for page, of_page, url in pages
    )
    is_page = area == name and request.endpoint == pages[0][1]
    current: Current = "page" if is_page else "true" if area == name else None
    return MenuEntry(name, pages[0][2], current, tabs if len(tabs) > 1 else ())


def _current(view: str, of_page: str) -> Current:
    if view != of_page:
        return None
    return "page" if request.endpoint == of_page else "true"


def _here() -> tuple[str, str]:
    """The area of this page, and the view of its tab."""
    endpoint = request.endpoint or ""
    if endpoint == "audit.index" and who_sees(request).is_admin and not request.args.get(PROJECT):
        return "Server", endpoint
    return OF_VIEWS.get(endpoint) or OF_BLUEPRINTS.get(endpoint.partition(".")[0], ("", ""))


# ---- words ---------------------------------------------------------------------------------------

# Words shared by several pages.


ROLES = (
    (Role.VIEWER, "Viewer: watches, downloads"),
    (Role.UPLOADER, "Uploader: also uploads"),
    (Role.EDITOR, "Editor: also changes, shares"),
    (Role.MANAGER, "Manager: also manages members"),
)
"""The roles of members, and what each may do; the list of members has the first word."""
