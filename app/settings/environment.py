"""Reads the settings from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from app.settings.table import Settings

PREFIX = "SLUICE_"


class SettingsError(ValueError):
    """Lists every variable whose value cannot be used."""


def from_env(environ: Mapping[str, str]) -> Settings:
    """Settings from `SLUICE_` variables; raises `SettingsError` naming all invalid ones."""
    values: dict[str, Any] = {}
    complaints = []
    known = {PREFIX + item.name.upper(): item for item in fields(Settings)}
    for variable, item in known.items():
        if variable not in environ:
            continue
        try:
            values[item.name] = item.metadata["parse"](environ[variable])
        except ValueError as error:
            shown = f"={environ[variable]!r}" if item.repr else ""
            complaints.append(f"{variable}{shown}: {error}")
    if values.get("oidc_issuer") and not values.get("oidc_client_id"):
        complaints.append(f"{PREFIX}OIDC_CLIENT_ID: must be set together with {PREFIX}OIDC_ISSUER")
    if values.get("direct_uploads") and not values.get("storage"):
        complaints.append(f"{PREFIX}STORAGE: must be set together with {PREFIX}DIRECT_UPLOADS")
    if values.get("smtp_url") and not values.get("public_url"):
        complaints.append(
            f"{PREFIX}PUBLIC_URL: must be set together with {PREFIX}SMTP_URL, as in "
            "https://videos.example: links in mail begin with it"
        )
    if complaints:
        raise SettingsError("These settings cannot be used:\n  " + "\n  ".join(complaints))
    return Settings(**values)
