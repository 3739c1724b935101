"""The documentation's site: its reference has every command, and only links into docs/ are links."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

from grader.cli import cli

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "tools" / "docs_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_command_and_option(hooks: ModuleType) -> None:
    text = hooks.reference()
    for name, command in cli.commands.items():
        assert f"## grade {name}\n" in text
        inner = command.commands if isinstance(command, click.Group) else {name: command}
        for option in (o for c in inner.values() for p in c.params for o in p.opts if o.startswith("--")):
            assert option in text


def test_a_link_out_of_the_site_is_left_as_text(hooks: ModuleType) -> None:
    page = "see [`a.py`](../grader/a.py), [there](students.md#x) and ![a picture](images/a.svg)"
    assert hooks.on_page_markdown(page) == "see `a.py`, [there](students.md#x) and ![a picture](images/a.svg)"


def test_the_site_builds_strictly(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / ".mkdocs.yml")]
    done = subprocess.run([*build, "-d", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "commands.html").is_file()
