"""API keys that `sluice login` keeps on this machine, one for each server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import mkstemp

from sluice_client.errors import FileProblem
from sluice_client.options import config_folder


class StoredKeys:
    """A file that only its owner can read: a JSON object of servers and their keys.

    Raises `FileProblem` if it cannot be read or written.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or config_folder()) / "keys.json"

    def load(self, server: str) -> str:
        """The key for a server; empty if there is none."""
        return self._read().get(server, "")

    def save(self, server: str, key: str) -> None:
        """Keep a key, in place of an earlier one."""
        self._write({**self._read(), server: key})

    def forget(self, server: str) -> bool:
        """Remove a key; whether there was one."""
        keys = self._read()
        if keys.pop(server, None) is None:
            return False
        self._write(keys)
        return True

    def _read(self) -> dict[str, str]:
        try:
            keys = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise FileProblem(f"{self.path} cannot be read: {error}") from error
        if not isinstance(keys, dict) or not all(isinstance(key, str) for key in keys.values()):
            raise FileProblem(f"{self.path} is damaged: remove it and log in again.")
        return keys

    def _write(self, keys: dict[str, str]) -> None:
        """Write the file whole; mkstemp makes files that only their owner can read."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, draft = mkstemp(dir=self.path.parent, suffix=".tmp")
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(keys, file, indent=1)
            os.replace(draft, self.path)
        except OSError as error:
            raise FileProblem(f"{self.path} cannot be written: {error}") from error
