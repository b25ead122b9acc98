"""Prints the figures of a package: lines, files, the longest of each, repeated class names.

    .venv/bin/python scripts/house.py app

A code line has at least one token: blank lines, comments and docstrings do not count.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

LONGEST = 10
"""So many functions and files are listed."""

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}

TRANSLATED = re.compile(
    r"\b(nobody|somebody|whoever|whatever|whomever|meanwhile|anew|whereby|thereby|of which|of whom"
    r"|is told|are told)\b",
    re.IGNORECASE,
)
"""Words that show a sentence was translated rather than written."""


@dataclass(frozen=True)
class Source:
    """One file that has code."""

    path: Path
    text: str
    tree: ast.Module
    code: frozenset[int]
    """Numbers of its code lines."""

    @classmethod
    def read(cls, path: Path) -> Source:
        """Parse a file."""
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                lines -= {*_span(node)}
        return cls(path, text, tree, frozenset(lines))

    def lines_of(self, node: ast.stmt) -> int:
        """How many code lines a statement has."""
        return len(self.code.intersection(_span(node)))

    @property
    def functions(self) -> list[ast.FunctionDef]:
        """All functions and methods."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]

    @property
    def import_lines(self) -> int:
        """Code lines that only import."""
        imports = (ast.Import, ast.ImportFrom)
        return sum(self.lines_of(node) for node in ast.walk(self.tree) if isinstance(node, imports))

    @property
    def called_once(self) -> list[ast.FunctionDef]:
        """Private functions that this file names exactly once, in a call."""
        nodes = [*ast.walk(self.tree)]
        named = Counter(_name(node) for node in nodes)
        called = Counter(_name(node.func) for node in nodes if isinstance(node, ast.Call))
        return [
            node
            for node in self.functions
            if node.name.startswith("_")
            and not node.name.endswith("__")
            and named[node.name] == called[node.name] == 1
        ]


def _name(node: ast.AST) -> str:
    """The last name of a loaded name or attribute."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def report(root: Path) -> None:
    """Print the figures of all files below `root`."""
    found = map(Source.read, sorted(root.rglob("*.py")))
    sources = [source for source in found if source.code]
    if not sources:
        sys.exit(f"There is no Python code below {root}.")
    code = sum(len(source.code) for source in sources)
    imports = sum(source.import_lines for source in sources)
    helpers = [(source, node) for source in sources for node in source.called_once]
    in_helpers = sum(source.lines_of(node) for source, node in helpers)
    words = sum(len(TRANSLATED.findall(source.text)) for source in sources)
    lines = sum(source.text.count("\n") for source in sources)
    print(f"{root}: {code} code lines in {len(sources)} files")
    print(f"imports: {imports / code:.1%} of the code")
    print(f"private helpers called once: {len(helpers)}, {in_helpers / code:.1%} of the code")
    print(f"translated words: {words / lines * 10_000:.0f} per 10,000 lines")
    _print_classes(sources)
    _print_longest(sources)


def _print_classes(sources: list[Source]) -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                where[node.name].append(str(source.path))
    repeated = {name: paths for name, paths in where.items() if len(paths) > 1}
    print(f"class names used more than once: {len(repeated)}")
    for name, paths in sorted(repeated.items()):
        print(f"    {name}: {', '.join(paths)}")


def _print_longest(sources: list[Source]) -> None:
    functions = [
        (source.lines_of(node), f"{source.path}:{node.name}")
        for source in sources
        for node in source.functions
    ]
    files = [(len(source.code), str(source.path)) for source in sources]
    for kind, sizes in (("functions", functions), ("files", files)):
        print(f"longest {kind}:")
        for size, name in sorted(sizes, reverse=True)[:LONGEST]:
            print(f"    {size:4d}  {name}")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        report(Path(argument))
