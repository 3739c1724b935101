"""Watching a folder: saves of the files asked for are seen, whichever way an editor saves."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.watch import saves

NAMES = ("b.py", "a.py")


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def rename_into_place(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    write(temporary, text)
    os.replace(temporary, path)


def first_save(folder: Path, save: Callable[[Path, str], None], *names: str) -> tuple[str, ...]:
    """What a watch gives for saves made after it was asked for and before it is waited for."""
    watched = saves(folder, NAMES)
    for name in names:
        save(folder / name, "x = 1\n")
    return next(watched)


@pytest.mark.parametrize("save", [write, rename_into_place])
def test_a_save_is_seen(tmp_path: Path, save: Callable[[Path, str], None]) -> None:
    assert first_save(tmp_path, save, "a.py") == ("a.py",)


def test_files_saved_together_come_together_in_the_order_asked_for(tmp_path: Path) -> None:
    assert first_save(tmp_path, write, "a.py", "b.py") == ("b.py", "a.py")


def test_files_not_asked_for_are_not_seen(tmp_path: Path) -> None:
    assert first_save(tmp_path, write, "c.py", "a.py", ".a.py.swp") == ("a.py",)


def test_a_file_as_it_was_is_not_a_save(tmp_path: Path) -> None:
    write(tmp_path / "a.py", "x = 1\n")

    assert first_save(tmp_path, write, "b.py") == ("b.py",)


def test_a_deleted_file_is_a_save_when_it_is_back(tmp_path: Path) -> None:
    write(tmp_path / "a.py", "x = 1\n")
    watched = saves(tmp_path, NAMES)
    (tmp_path / "a.py").unlink()
    write(tmp_path / "b.py", "x = 1\n")
    assert next(watched) == ("b.py",)

    write(tmp_path / "a.py", "x = 1\n")

    assert next(watched) == ("a.py",)


def test_saves_made_between_two_looks_come_together(tmp_path: Path) -> None:
    watched = saves(tmp_path, NAMES)
    write(tmp_path / "a.py", "x = 1\n")
    next(watched)
    write(tmp_path / "b.py", "x = 1\n")
    write(tmp_path / "a.py", "x = 10\n")

    assert next(watched) == ("b.py", "a.py")


def test_stopping_ends_the_watch(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()

    assert list(saves(tmp_path, NAMES, stop=stop)) == []
