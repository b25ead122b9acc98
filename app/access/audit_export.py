"""The audit log as files: JSON Lines for programs, CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from app.core.audit import AuditEntry
from app.core.moments import instant

FORMULA_SIGNS = tuple("=+-@\t\r\n＝＋－＠")
"""A spreadsheet takes a cell that begins with one of these for a formula, and runs it."""

COLUMNS = ("id", "at", "action", "actor", "actor_name", "address", "subject", "project", "details")


def document_of(entry: AuditEntry) -> dict[str, Any]:
    """An entry as JSON shows it."""
    return {
        "id": entry.number,
        "at": instant(entry.at),
        "action": entry.action.value,
        "actor": entry.actor,
        "actor_name": entry.actor_name,
        "address": entry.address,
        "subject": entry.subject,
        "project": entry.project_id,
        "details": entry.details,
    }


def json_lines(entries: Iterable[AuditEntry]) -> Iterator[str]:
    """One object a line."""
    for entry in entries:
        yield json.dumps(document_of(entry), ensure_ascii=False) + "\n"


def csv_lines(entries: Iterable[AuditEntry]) -> Iterator[str]:
    """A line of titles, then one line an entry (RFC 4180)."""
    yield _csv_line(COLUMNS)
    for entry in entries:
        document = document_of(entry)
        document["details"] = json.dumps(entry.details, ensure_ascii=False)
        yield _csv_line([without_formula(str(document[name] or "")) for name in COLUMNS])


def without_formula(text: str) -> str:
    """The text of a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA_SIGNS) else text


def _csv_line(cells: Iterable[str]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()
