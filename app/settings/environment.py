"""Reads the settings from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import Field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from app.settings.removed import REMOVED
from app.settings.staging import choose_staging
from app.settings.table import Settings

PREFIX = "SLUICE_"

TEST_CONSTANTS = f"{PREFIX}TEST_CONSTANTS"
"""Other values for the constants of `Settings`, as in `sweep_seconds=0.2 reservation_seconds=3`.
For tests of whole servers: no setting."""

OTHERS = frozenset({"URL", "API_KEY", "COMPLETE", "SUPERVISOR_PID", "NODE", "BARE"})
OTHERS_BEGIN = ("CLIENT_", "BENCH_", "SERVICE_", "PORT_", "TEST_")
"""Prefixes of variables that are not settings of the server: those of the client, of benchmarks, of
Kubernetes (for a service called sluice), of tests, and those that a server passes to its
processes."""

_PREFIX_IN_ANY_FORM = re.compile("sluice[_-]?", re.IGNORECASE)

SHOWN_CHARACTERS = 100
"""Maximum characters of an invalid value in an error message."""

NEEDS = {
    "oidc_issuer": "oidc_client_id",
    "oidc_client_id": "oidc_issuer",
    "oidc_client_secret": "oidc_issuer",
    "oidc_join": "oidc_issuer",
    "direct_uploads": "storage",
    "direct_downloads": "storage",
    "s3_endpoint": "storage",
    "smtp_url": "public_url",  # links in mail begin with it
}
"""Settings that have no effect without another one."""


class SettingsError(ValueError):
    """Lists every variable with an invalid value."""


def variables() -> dict[str, Field[Any]]:
    """The field of `Settings` of each variable."""
    return {PREFIX + item.name.upper(): item for item in fields(Settings) if item.metadata}


def from_env(environ: Mapping[str, str]) -> Settings:
    """Settings from `SLUICE_` variables; raises `SettingsError` naming all invalid ones."""
    values = _test_constants(environ.get(TEST_CONSTANTS, ""))
    complaints = []
    for variable, item in variables().items():
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
        complaints = [*_contradictions(settings), *_lost_limits(settings, environ)]
    if len(complaints) == 1:
        raise SettingsError(f"This setting cannot be used: {complaints[0]}")
    if complaints:
        raise SettingsError("These settings cannot be used:\n  " + "\n  ".join(complaints))
    return settings


def without_effect(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that looks like a setting: it was one, or may be misspelt."""
    names = [variable.removeprefix(PREFIX) for variable in variables()]
    found = []
    for variable in sorted(environ):
        start, name = variable[: len(PREFIX)], variable[len(PREFIX) :]
        if start == PREFIX and (name in {*names, *OTHERS} or name.startswith(OTHERS_BEGIN)):
            continue
        if variable in REMOVED:
            hint = REMOVED[variable].instead
            found.append(f"{variable} is no longer a setting and has no effect: {hint}")
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


def _test_constants(text: str) -> dict[str, Any]:
    constants: dict[str, Any] = {
        item.name: item.default for item in fields(Settings) if not item.metadata
    }
    chosen = {}
    for word in text.split():
        name, _, value = word.partition("=")
        if name not in constants:
            raise SettingsError(f"{TEST_CONSTANTS}: {name} is not a constant")
        chosen[name] = type(constants[name])(value)
    return chosen


def _shown(text: str) -> str:
    return repr(text) if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]!r}..."


def _contradictions(settings: Settings) -> list[str]:
    complaints = [
        f"{PREFIX}{name.upper()}: must be set together with {PREFIX}{other.upper()}"
        for name, other in NEEDS.items()
        if getattr(settings, name) and not getattr(settings, other)
    ]
    if not (settings.is_open or settings.sign_in or settings.oidc_issuer):
        complaints.append(
            f"{PREFIX}SIGN_IN and {PREFIX}OIDC_ISSUER are both empty: no one could sign in"
        )
    return complaints


def _lost_limits(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Removed settings that set a limit which would not hold any more."""
    complaints = []
    for variable in sorted(REMOVED.keys() & environ.keys()):
        if not environ[variable].strip():  # Empty, as in a file of variables: the default.
            continue
        removed = REMOVED[variable]
        try:
            is_kept = removed.is_kept(settings, environ[variable])
        except ValueError:
            is_kept = False
        if not is_kept:
            complaints.append(
                f"{variable}={_shown(environ[variable])}: is no longer a setting, so this limit "
                f"would be lost: {removed.instead}. Remove it once the limits are as you want them"
            )
    return complaints
