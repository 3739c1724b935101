"""The folder of a submission's stage: a snapshot to read, a scratch space to write, and its removal."""

from __future__ import annotations

import itertools
import os
import stat
import tempfile
from pathlib import Path


def make() -> Path:
    """Make a fresh folder with `snapshot` and `scratch` in it."""
    folder = Path(tempfile.mkdtemp(prefix="kvgrade-")).resolve()
    (folder / "snapshot").mkdir()
    (folder / "scratch").mkdir(mode=0o700)
    return folder


def renew(folder: Path) -> None:
    """Empty the scratch space of a folder that `make` made, when whoever wrote there has ended."""
    remove(folder / "scratch")
    (folder / "scratch").mkdir(mode=0o700)


def remove(folder: Path) -> None:
    """Remove a folder, whatever a worker has made in it: locked folders, or ten thousand in each other.

    At such a depth a recursion ends, and a path is too long: what lies deep is moved up and emptied there.
    """
    fresh = itertools.count()
    try:
        while True:
            inside = os.listdir(folder)
            if not inside:
                return os.rmdir(folder)
            for name in inside:
                _empty(folder / name, folder, fresh)
    except OSError:  # somebody else is at work in there, or has removed it already
        return None


def _empty(path: Path, top: Path, fresh: itertools.count[int]) -> None:
    """Remove a file; or a folder, its own folders moved up to the top."""
    if not stat.S_ISDIR(path.lstat().st_mode):
        return path.unlink()
    path.chmod(0o700)
    for name in os.listdir(path):
        inner = path / name
        if stat.S_ISDIR(inner.lstat().st_mode):
            inner.chmod(0o700)  # to move a folder, one must be able to write its `..`
            inner.rename(top / f".{next(fresh)}")
        else:
            inner.unlink()
    path.rmdir()
