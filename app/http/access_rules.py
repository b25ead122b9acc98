"""What each view asks for, declared beside its route: `@requires(Action.SHARE)`.

A server with a view that declares nothing does not start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from flask import Flask

from app.core.access import Action

View = TypeVar("View", bound=Callable[..., Any])

_RULE = "access_rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """Who may send requests to a view."""

    action: Action
    is_below_links: bool
    """Found below a link too, although everybody may see it."""
    is_counted: bool
    """Counts for the caller's requests a minute."""


class MissingRule(TypeError):
    """A view does not say who may use it."""


def requires(
    action: Action, *, is_below_links: bool = False, is_counted: bool = True
) -> Callable[[View], View]:
    """Declares what callers of a view must be allowed to do; stands between route and view."""
    rule = AccessRule(action=action, is_below_links=is_below_links, is_counted=is_counted)

    def declare(view: View) -> View:
        setattr(view, _RULE, rule)
        return view

    return declare


def rules_of(app: Flask) -> Mapping[str, AccessRule]:
    """The rule of each endpoint; raises `MissingRule`."""
    return {endpoint: _rule_of(endpoint, view) for endpoint, view in app.view_functions.items()}


def _rule_of(endpoint: str, view: Callable[..., Any]) -> AccessRule:
    rule: AccessRule | None = getattr(view, _RULE, None)
    if rule is None:
        raise MissingRule(
            f"Nothing says who may use {endpoint}: write @requires(Action....) above "
            f"{view.__module__}.{view.__qualname__}, below its route. "
            "The actions are in app/core/access.py."
        )
    return rule
