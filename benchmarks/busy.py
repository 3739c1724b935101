"""Cores kept busy while something is measured."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_busy(cores: int) -> Iterator[None]:
    """Keep so many cores busy with nothing."""
    spinners = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(cores)]
    for process in spinners:
        process.start()
    try:
        yield
    finally:
        for process in spinners:
            process.kill()


def _spin() -> None:
    while True:
        sum(range(10_000))
