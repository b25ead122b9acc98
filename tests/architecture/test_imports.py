"""What import-linter cannot see: what a fresh interpreter really loads."""

import ast
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT

BELOW_FLASK = (
    *("core", "settings", "ingest", "db", "storage", "records"),
    *("uploads", "access", "video", "run.build"),
)

PROBE = """
import importlib, pkgutil, sys
OURS = {"app", "sluice_client"}
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
        if "migrations" not in found.name and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
print(*sorted(name for name in sys.modules if name.partition(".")[0] in OURS))
"""


def loaded_by(*modules: str) -> tuple[set[str], set[str]]:
    """Top-level packages, and our modules, that a new interpreter has loaded after the imports."""
    result = subprocess.run(
        [sys.executable, "-c", PROBE, *modules],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    packages, ours = result.stdout.splitlines()
    return set(packages.split()), set(ours.split())


@pytest.mark.parametrize("module", BELOW_FLASK)
def test_no_layer_from_the_services_down_loads_flask(module: str) -> None:
    packages, _ = loaded_by(f"app.{module}")
    assert packages.isdisjoint({"flask", "werkzeug"})


def test_the_core_loads_only_the_standard_library() -> None:
    packages, _ = loaded_by("app.core")
    assert packages - sys.stdlib_module_names - {"app", "__main__"} <= interpreter_packages()


def test_a_server_loads_the_code_of_buckets_only_if_it_has_one() -> None:
    packages, ours = loaded_by("app.run.build", "app.run.factory")
    assert "botocore" not in packages
    assert not any(name.startswith("app.storage.s3.") for name in ours)


def test_a_bucket_loads_botocore_at_its_first_call() -> None:
    packages, _ = loaded_by("app.storage.s3.store")
    assert "botocore" not in packages


def test_the_client_loads_nothing_of_the_server() -> None:
    packages, ours = loaded_by("sluice_client")
    assert packages.isdisjoint({"flask", "werkzeug", "gunicorn", "sqlalchemy"})
    assert {name for name in ours if name.partition(".")[0] != "sluice_client"} == set()


def test_the_package_itself_imports_nothing() -> None:
    tree = ast.parse((ROOT / "app" / "__init__.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imports == []


def interpreter_packages() -> set[str]:
    """What an interpreter of this environment has loaded before it imports our code."""
    listing = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in listing.stdout.split()}
