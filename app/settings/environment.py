"""Reads the settings from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from app.settings.staging import choose_staging
from app.settings.table import Settings

PREFIX = "SLUICE_"

OTHERS = frozenset({"URL", "API_KEY", "COMPLETE", "SUPERVISOR_PID", "NODE", "BARE"})
OTHERS_BEGIN = ("CLIENT_", "BENCH_", "SERVICE_", "PORT_")
"""Prefixes of variables that are not settings of the server: those of the client, of benchmarks, of
Kubernetes (for a service called sluice), and those that a server passes to its processes."""

_PREFIX_IN_ANY_FORM = re.compile("sluice[_-]?", re.IGNORECASE)

SHOWN_CHARACTERS = 100
"""Maximum characters of an invalid value in an error message."""

NEEDS = {
    "oidc_issuer": "oidc_client_id",
    "oidc_client_id": "oidc_issuer",
    "oidc_client_secret": "oidc_issuer",
    "oidc_domains": "oidc_issuer",
    "oidc_groups": "oidc_issuer",
    "direct_uploads": "storage",
    "direct_downloads": "storage",
    "s3_endpoint": "storage",
    "smtp_url": "public_url",  # links in mail begin with it
}
"""Settings that have no effect without another one."""


class SettingsError(ValueError):
    """Lists every variable with an invalid value."""


def from_env(environ: Mapping[str, str]) -> Settings:
    """Settings from `SLUICE_` variables; raises `SettingsError` naming all invalid ones."""
    values: dict[str, Any] = {}
    complaints = []
    for variable, item in _known().items():
        if variable not in environ:
            continue
        try:
            values[item.name] = item.metadata["parse"](environ[variable])
        except ValueError as error:
            shown = f"={_shown(environ[variable])}" if item.repr else ""
            complaints.append(f"{variable}{shown}: {error}")
    if not complaints:
        if "staging_dir" not in values:
            default = Path(Settings.__dataclass_fields__["data_dir"].metadata["default"])
            data_dir = values.get("data_dir", default.absolute())
            values["staging_dir"] = choose_staging(data_dir).path
        settings = Settings(**values)
        complaints = _contradictions(settings)
    if len(complaints) == 1:
        raise SettingsError(f"This setting cannot be used: {complaints[0]}")
    if complaints:
        raise SettingsError("These settings cannot be used:\n  " + "\n  ".join(complaints))
    return settings


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that looks like a setting but is not: perhaps misspelt."""
    names = [item.name.upper() for item in fields(Settings)]
    found = []
    for variable in sorted(environ):
        start, name = variable[: len(PREFIX)], variable[len(PREFIX) :]
        if start == PREFIX and (name in {*names, *OTHERS} or name.startswith(OTHERS_BEGIN)):
            continue
        meant = _PREFIX_IN_ANY_FORM.match(variable)
        if meant is None:
            continue
        nearest = get_close_matches(variable[meant.end() :].upper(), names, n=1)
        hint = (
            f"did you mean {PREFIX}{nearest[0]}?"
            if nearest
            else "docs/settings.md lists the settings"
        )
        found.append(f"{ascii(variable)[1:-1]} is not a setting and has no effect: {hint}")
    return found


def _shown(text: str) -> str:
    return repr(text) if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]!r}..."


def _known() -> dict[str, Any]:
    return {PREFIX + item.name.upper(): item for item in fields(Settings)}


def _contradictions(settings: Settings) -> list[str]:
    complaints = [
        f"{_variable(name)}: must be set together with {_variable(other)}"
        for name, other in NEEDS.items()
        if getattr(settings, name) and not getattr(settings, other)
    ]
    if not (settings.is_open or settings.passwords or settings.passkeys or settings.oidc_issuer):
        complaints.append(
            f"{_variable('passwords')} and {_variable('passkeys')} are off, and "
            f"{_variable('oidc_issuer')} is empty: nobody could sign in"
        )
    return complaints


def _variable(name: str) -> str:
    return PREFIX + name.upper()
