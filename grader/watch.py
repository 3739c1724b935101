"""Saved files: which of a folder's files an editor has just written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threading import Event

DEBOUNCE_MS = 200
STEP_MS = 20
LOOK_AGAIN_MS = 500
"""How often files are looked at without being told of a change: some shared folders never tell."""

Stamps = dict[str, tuple[int, int, int]]


def saves(folder: Path, names: Sequence[str], *, stop: Event | None = None) -> Iterator[tuple[str, ...]]:
    """Wait for saves of files with these names; give the names saved together, in the order of `names`.

    Saves from this call on are seen, also those made before the first is waited for. A new file renamed into
    place is a save too. Ends when `stop` is set.
    """
    return _later_saves(folder, names, _stamps(folder, names), stop)


def _later_saves(
    folder: Path, names: Sequence[str], seen: Stamps, stop: Event | None
) -> Iterator[tuple[str, ...]]:
    from watchfiles import watch

    looks = watch(
        folder,
        watch_filter=lambda change, path: Path(path).name in names,
        debounce=DEBOUNCE_MS,
        step=STEP_MS,
        rust_timeout=LOOK_AGAIN_MS,
        yield_on_timeout=True,
        stop_event=stop,
        recursive=False,
    )
    for _ in looks:
        now = _stamps(folder, names)
        saved = tuple(name for name in names if name in now and now[name] != seen.get(name))
        seen = now
        if saved:
            yield saved


def _stamps(folder: Path, names: Sequence[str]) -> Stamps:
    """What tells two saves of a file apart: when it was written, its size and its inode."""
    stamps = {}
    for name in names:
        try:
            about = os.stat(folder / name)
        except OSError:  # not there, or just being replaced
            continue
        stamps[name] = (about.st_mtime_ns, about.st_size, about.st_ino)
    return stamps
