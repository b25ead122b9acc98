"""Finds the files to send from the arguments, and the reasons for those left out."""

from __future__ import annotations

import glob
import os
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sluice_client.errors import FileProblem
from sluice_client.local_file import LocalFile


@dataclass(frozen=True, slots=True)
class Left:
    """Something that is not sent.

    `is_failure` if it was asked for; `is_missing` if an argument names nothing at all.
    """

    path: Path
    reason: str
    is_failure: bool
    is_missing: bool = False


def find_files(words: Iterable[str]) -> Iterator[LocalFile | Left]:
    """The files that paths, folders (with all below) and patterns name, each once.

    Links to files come last, and are left out if the file itself is among the others.
    """
    seen: dict[Path, Path] = {}
    links: list[LocalFile | Left] = []
    for word in words:
        for found in _expand(word):
            if found.path.is_symlink():
                links.append(found)
            else:
                yield from _once(found, seen)
    for found in links:
        yield from _once(found, seen)


def _once(found: LocalFile | Left, seen: dict[Path, Path]) -> Iterator[LocalFile | Left]:
    """It, unless it was seen before; `seen` has the first path by which each file was named."""
    key = found.path.resolve() if isinstance(found, LocalFile) else found.path
    first = seen.setdefault(key, found.path)
    if first is found.path:
        yield found
    elif os.path.abspath(first) != os.path.abspath(found.path):
        yield Left(found.path, f"is the same file as {first}", is_failure=False)


def _expand(word: str) -> Iterator[LocalFile | Left]:
    path = Path(word)
    if os.path.lexists(path):
        yield from _path(path)
        return
    matches = sorted(glob.glob(word, recursive=True)) if glob.has_magic(word) else []
    if not matches:
        yield Left(path, "no such file or folder", is_failure=True, is_missing=True)
    for match in matches:
        yield from _path(Path(match))


def _path(path: Path) -> Iterator[LocalFile | Left]:
    if path.is_dir():
        yield from _folder(path)
    else:
        yield _file(path, path.name, is_named=True)


def _folder(top: Path) -> Iterator[LocalFile | Left]:
    """Everything below; links to folders are not followed, as they may form a loop."""
    unreadable: list[OSError] = []
    above = top.resolve().parent
    found_any = False
    for folder, subfolders, names in os.walk(top, onerror=unreadable.append):
        subfolders.sort()
        inside = Path(folder).resolve().relative_to(above)
        for name in sorted([*names, *(n for n in subfolders if Path(folder, n).is_symlink())]):
            found_any = True
            path = Path(folder, name)
            yield _file(path, (inside / name).as_posix(), is_named=False)
    for error in unreadable:
        reason = f"the folder cannot be read: {error.strerror}"
        yield Left(Path(error.filename), reason, is_failure=True)
    if not found_any and not unreadable:
        yield Left(top, "the folder is empty", is_failure=False)


def _file(path: Path, name: str, *, is_named: bool) -> LocalFile | Left:
    if path.is_symlink() and not path.exists():
        return Left(path, "is a broken link", is_failure=True)
    if path.is_symlink() and path.is_dir():
        return Left(path, "is a link to a folder; those are not followed", is_failure=is_named)
    try:
        file = LocalFile.at(path, sendable_name(name))
    except FileProblem as error:
        is_special = path.exists() and not path.is_file()
        return Left(path, _reason(error, path), is_failure=is_named or not is_special)
    if not os.access(path, os.R_OK):
        return Left(path, "cannot be read: permission denied", is_failure=True)
    return file


def _reason(error: FileProblem, path: Path) -> str:
    return str(error).removeprefix(f"{path}: ")


def sendable_name(name: str) -> str:
    """The name as valid text: bytes that are not UTF-8 become replacement characters."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return "".join("_" if unicodedata.category(c) in {"Cc", "Cs"} else c for c in text)
