"""The import directions of the design, held by reading every import in grader/."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import grader

ROOT = Path(grader.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
BESIDE_STUDENT_CODE = {f"sandbox.{name}" for name in ("confine", "zygote", "worker", "wire", "work")}
VALUES = {
    "errors",
    "course",
    "outcome",
    "scoring",
    "report",
    "records",
    "memory",
    "hardware",
    "roofline",
    "tables",
    "gradebook",
    "changes",
    "likeness",
    "roster",
    "marks",
}


def module_name(path: Path) -> str:
    """`sandbox.wire` for grader/sandbox/wire.py, `` for grader/__init__.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imported(path: Path, *, top_only: bool = False) -> set[str]:
    """Every module that a file imports, less `grader.`; only those of import time if `top_only`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in _at_import_time(tree) if top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            found |= {_target(node.module or "", alias.name) for alias in node.names}
    return {name.removeprefix("grader.") for name in found}


def _target(module: str, name: str) -> str:
    """What `from module import name` imports: a module of ours where there is one, else `module`."""
    candidate = ROOT.parent.joinpath(*module.split("."), name)
    is_ours = module.split(".")[0] == "grader"
    is_module = candidate.with_suffix(".py").is_file() or candidate.is_dir()
    return f"{module}.{name}" if is_ours and is_module else module


def _at_import_time(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        is_typing = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if is_typing or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield child
        yield from _at_import_time(child)


def ours(names: set[str]) -> set[str]:
    """Those of the imported modules that lie in grader/."""
    modules = {module_name(path) for path in FILES}
    return {name for name in names if name in modules and name}


def outsiders(names: set[str]) -> set[str]:
    """The top names of imported modules that are neither ours nor the standard library's."""
    tops = {name.split(".")[0] for name in names - ours(names)}
    return tops - set(sys.stdlib_module_names) - {"grader"}


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_nothing_imports_the_command_line(path: Path) -> None:
    assert "cli" not in imported(path)
    assert not imported(path) & {"cli_class", "cli_course"} or module_name(path) == "cli"


@pytest.mark.parametrize("path", [p for p in FILES if module_name(p) in BESIDE_STUDENT_CODE], ids=module_name)
def test_what_runs_beside_student_code_imports_only_errors_and_the_sandbox(path: Path) -> None:
    assert {name for name in ours(imported(path)) if not name.startswith("sandbox")} <= {"errors"}


@pytest.mark.parametrize("path", [p for p in FILES if module_name(p).startswith("sandbox.")], ids=module_name)
def test_the_sandbox_knows_no_pytest_and_no_course(path: Path) -> None:
    names = imported(path)

    assert not names & {"pytest", "_pytest"}
    assert not ours(names) & {"session", "pytest_plugin", "report", "run", "terminal", "submission"}


@pytest.mark.parametrize("path", [p for p in FILES if module_name(p) in VALUES], ids=module_name)
def test_values_import_only_values_and_msgspec(path: Path) -> None:
    names = imported(path)

    assert ours(names) <= VALUES
    assert outsiders(names) <= {"msgspec"}


@pytest.mark.parametrize("path", [p for p in FILES if module_name(p).startswith("render.")], ids=module_name)
def test_renderers_import_only_values_and_each_other(path: Path) -> None:
    assert {name for name in ours(imported(path)) if not name.startswith("render")} <= VALUES


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_matplotlib_is_imported_only_for_plots(path: Path) -> None:
    assert "matplotlib" not in outsiders(imported(path)) or module_name(path) == "render.plots"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_dask_is_imported_only_for_a_cluster(path: Path) -> None:
    assert not outsiders(imported(path)) & {"dask", "distributed"} or module_name(path) == "cluster"
    assert not outsiders(imported(path, top_only=True)) & {"dask", "distributed"}


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_nbgrader_is_imported_only_for_notebooks(path: Path) -> None:
    theirs = {"nbformat", "nbgrader", "sqlalchemy"}
    assert not outsiders(imported(path)) & theirs or module_name(path) == "nbgrader"
    assert not outsiders(imported(path, top_only=True)) & theirs


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_transformers_is_never_imported_at_import_time(path: Path) -> None:
    assert "transformers" not in outsiders(imported(path, top_only=True))


@pytest.mark.parametrize(
    "name",
    [
        "cli",
        "cli_class",
        "cli_course",
        "options",
        "run",
        "figures",
        "faults",
        "terminal",
        "watch",
        "doctor",
        *sorted(VALUES),
    ],
)
def test_the_way_to_help_imports_nothing_slow(name: str) -> None:
    (path,) = (p for p in FILES if module_name(p) == name)

    assert outsiders(imported(path, top_only=True)) <= {"click", "msgspec"}
