"""Watching a folder: saves of the files asked for are seen, whichever way an editor saves."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.watch import saves

NAMES = ("b.py", "a.py")
PATIENCE_S = 20.0
PAUSE_S = 0.1


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def rename_into_place(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    write(temporary, text)
    os.replace(temporary, path)


def first_save(folder: Path, save: Callable[[Path, str], None], *names: str) -> tuple[str, ...]:
    """Save these files again and again, as the watch may begin late, until a save is seen; give it."""
    stop = threading.Event()

    def keep_saving() -> None:
        for turn in range(int(PATIENCE_S / PAUSE_S)):
            for name in names:
                save(folder / name, str(turn))
            if stop.wait(PAUSE_S):
                return
        stop.set()

    thread = threading.Thread(target=keep_saving)
    thread.start()
    try:
        return next(saves(folder, NAMES, stop=stop), ())
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("save", [write, rename_into_place])
def test_a_save_is_seen(tmp_path: Path, save: Callable[[Path, str], None]) -> None:
    assert first_save(tmp_path, save, "a.py") == ("a.py",)


def test_files_saved_together_come_together_in_the_order_asked_for(tmp_path: Path) -> None:
    assert first_save(tmp_path, write, "a.py", "b.py") == ("b.py", "a.py")


def test_files_not_asked_for_are_not_seen(tmp_path: Path) -> None:
    assert first_save(tmp_path, write, "c.py", "a.py", ".a.py.swp") == ("a.py",)


def test_stopping_ends_the_watch(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()

    assert list(saves(tmp_path, NAMES, stop=stop)) == []
