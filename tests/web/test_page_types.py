"""types/api.d.ts, with which the page's script is checked, agrees with the API's description."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.web.description import SCHEMAS

TYPES = Path(__file__).parents[2] / "types" / "api.d.ts"

OTHER_NAMES = {"Track": "TrackFacts", "ChunkReceipt": "Receipt", "FileReceipt": "StoredFile"}
"""Interfaces that have another name there."""

UNDESCRIBED = {
    "Job",  # Two schemas in one: of jobs that wait, and of jobs that failed.
    "RefusedFile",  # With members that it never has, for tsc.
}

INTERFACES = {
    name: dict(re.findall(r"^    (\w+\??): (.*);$", body, re.MULTILINE))
    for name, body in re.findall(
        r"^  interface (\w+) \{\n(.*?)^  \}", TYPES.read_text(), re.MULTILINE | re.DOTALL
    )
}


def may_be_null(schema: dict[str, Any]) -> bool:
    kinds = [schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return any("null" in kind.get("type", "") or None in kind.get("enum", ()) for kind in kinds)


@pytest.mark.parametrize("name", sorted(INTERFACES.keys() - UNDESCRIBED))
def test_an_interface_is_as_described(name: str) -> None:
    schema, members = SCHEMAS[OTHER_NAMES.get(name, name)], INTERFACES[name]
    assert members
    for member, kind in members.items():
        if kind == "undefined":
            continue
        described = schema["properties"][member.rstrip("?")]
        assert member.endswith("?") or member in schema["required"], member
        assert "null" in kind or not may_be_null(described), member
