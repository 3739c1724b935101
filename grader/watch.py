"""Saved files: which of a folder's files an editor has just written."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threading import Event

DEBOUNCE_MS = 200
STEP_MS = 25


def saves(folder: Path, names: Collection[str], *, stop: Event | None = None) -> Iterator[tuple[str, ...]]:
    """Wait for saves of files with these names; yield the names saved together, in the order of `names`.

    A new file renamed into place is a save too. Ends quietly when interrupted, or when `stop` is set.
    """
    from watchfiles import Change, watch

    def is_save(change: Change, path: str) -> bool:
        return change is not Change.deleted and Path(path).name in names

    for changes in watch(
        folder,
        watch_filter=is_save,
        debounce=DEBOUNCE_MS,
        step=STEP_MS,
        stop_event=stop,
        recursive=False,
        raise_interrupt=False,
    ):
        saved = {Path(path).name for _, path in changes}
        yield tuple(name for name in names if name in saved)
