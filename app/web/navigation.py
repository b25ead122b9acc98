"""The navigation bar of every page: its entries, and the current one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

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


Tab = tuple[str, str, dict[str, Any]]
"""The name of a page, its view, and the values of its URL."""


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
    if caller.kind is CallerKind.ANONYMOUS or caller.needs_second_factor:
        return ()
    areas = [_area("Library", [("Library", "pages.index", {})])]
    if reach_of(Action.SHARE, caller.role) is not Reach.NONE:
        links: list[Tab] = [("Share", "links.index", {}), ("Receive", "upload_links.index", {})]
        areas.append(_area("Links", links))
    if caller.is_manager:
        # Administrators see the audit log of the whole server, unless the URL names a project.
        of_project = {PROJECT: caller.project} if caller.is_admin else {}
        pages: list[Tab] = [
            ("Members", "project.show", {}),
            ("Keys", "project.keys", {}),
            ("Webhooks", "webhooks.index", {}),
            ("Log", "audit.index", of_project),
        ]
        areas.append(_area("Project", pages))
    if caller.is_admin:
        people: list[Tab] = [("People", "people.index", {}), ("Projects", "projects.index", {})]
        pages = [
            ("Status", "status.page", {}),
            *(people if caller.kind is CallerKind.PERSON else []),
            ("Log", "audit.index", {PROJECT: None}),
        ]
        areas.append(_area("Server", pages))
    return tuple(areas)


def _area(name: str, pages: list[Tab]) -> MenuEntry:
    """An entry that leads to its first page, with all as tabs if one of them is current."""
    area, view = _here()
    (_, first, values), *others = pages
    if area != name:
        return MenuEntry(name, url_for(first, **values), None)
    tabs = tuple(
        MenuEntry(page, url_for(endpoint, **of), _current(view, endpoint))
        for page, endpoint, of in pages
    )
    current: Current = "page" if request.endpoint == first else "true"
    return MenuEntry(name, tabs[0].url, current, tabs if others else ())


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
