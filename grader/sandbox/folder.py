"""The folder of a submission's stage: a snapshot to read, a scratch space to write, and its removal."""

from __future__ import annotations

import os
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

    At such a depth a recursion ends, a path is too long, and there are not enough descriptors: one leads down
    and up again.
    """
    try:
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # removed already
        return
    try:
        _empty(here)
        os.rmdir(folder)
    except OSError:  # somebody else is at work in there
        return


def _empty(here: int) -> None:
    """Remove all that lies in the folder open as `here`, which is closed in the end."""
    above: list[str] = []
    try:
        while True:
            inner = _unlink_files(here)
            if inner:
                os.chmod(inner, 0o700, dir_fd=here)
            elif not above:
                return
            into = os.open(inner or "..", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = into
            if inner:
                above.append(inner)
            else:
                os.rmdir(above.pop(), dir_fd=here)
    finally:
        os.close(here)


def _unlink_files(here: int) -> str:
    """Remove all but folders; returns a folder's name where there is one."""
    inner = ""
    with os.scandir(here) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inner = entry.name
            else:
                os.unlink(entry.name, dir_fd=here)
    return inner
