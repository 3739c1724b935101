"""What mkdocs does beside rendering docs/: the first page, the commands' reference, links out of docs/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

from grader.cli import cli

ROOT = Path(__file__).resolve().parents[1]
OUTWARD = re.compile(r"!?\[([^\]]*)\]\((?:\.\./|LICENSE|CHANGELOG|exercises/)[^)]*\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the README as the first page, and the reference that click's own help makes."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=readme))
    files.append(File.generated(config, "commands.md", content=reference()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leave of a link to a file that is not part of the site its text."""
    return OUTWARD.sub(r"\1", markdown)


def reference() -> str:
    """Every command's help, a section each."""
    parts = ["# Commands\n\nWhat `--help` says of each. `grade` works from any folder inside a course.\n"]
    for path, context in _commands(click.Context(cli, info_name="grade")):
        text = context.get_help().rstrip()
        parts.append(f"## {path}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def _commands(context: click.Context) -> Iterator[tuple[str, click.Context]]:
    yield context.command_path, context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command and not command.hidden:
                yield from _commands(click.Context(command, info_name=name, parent=context))
