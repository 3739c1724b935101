"""How a batch is ordered, and that order kept beside its results, so that it can be graded again."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from grader import report as reports
from grader.faults import Mistake
from grader.results import ORDER
from grader.session import Options

SCHEMA = "kvgrade/batch/v1"
PLACES = ("path", "roster")
NOT_KEPT = (
    "out",
    "spared",
    "jobs",
    "scheduler",
    "force",
)  # they say where and how fast, not what comes of it


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command's options say; `spared` is a further folder of results, which holds no submission."""

    path: Path
    out: Path
    roster: Path | None = None
    on_duplicate: str = "latest"
    assignment: str | None = None
    jobs: int = 0
    force: bool = False
    similarity: bool = False
    due: str | None = None
    late: str = "none"
    file_times: bool = False
    isolation: str = "auto"
    public_only: bool = False
    seed: str | None = None
    profile: str | None = None
    scheduler: str | None = None
    spared: Path | None = None

    @property
    def options(self) -> Options:
        """How to grade: strangers' code is confined, or the caller said that it need not be."""
        level = "confined" if self.isolation == "auto" else self.isolation
        return Options(level, self.public_only, self.seed, self.profile)


def keep(wanted: Wanted) -> None:
    """Write the order into the folder of results."""
    fields = {name: getattr(wanted, name) for name in Wanted.__slots__ if name not in NOT_KEPT}
    fields |= {name: str(fields[name].resolve()) for name in PLACES if fields[name]}
    text = json.dumps({"schema": SCHEMA, **fields}, ensure_ascii=False, indent=1) + "\n"
    reports.write(wanted.out / ORDER, text)


def load(out: Path) -> Wanted:
    """Read how a folder of results was ordered.

    Raises Mistake where it says nothing of it, or another version did.
    """
    path = out / ORDER
    try:
        kept: Any = json.loads(path.read_text(encoding="utf-8"))
        if kept["schema"] != SCHEMA:
            raise ValueError(f"it is not of `{SCHEMA}`")
        fields = {name: kept[name] for name in Wanted.__slots__ if name in kept}
        return msgspec.convert({**fields, "out": str(out)}, Wanted, dec_hook=_path)
    except (OSError, ValueError, TypeError, KeyError, msgspec.ValidationError) as error:
        what = f"`{out}` does not say how it was graded: {ORDER}: {error}"
        raise Mistake(f"{what}; run the same `grade batch` once more, which keeps the reports") from error


def moved(wanted: Wanted, path: Path | None) -> Wanted:
    """The order for submissions that lie at `path` now, or where they were.

    Raises Mistake where they, or the roster, are not there.
    """
    now = replace(wanted, path=path or wanted.path)
    if not now.path.is_dir():
        gone = f"the submissions are not at `{now.path}` any more"
        raise Mistake(f"{gone}: `grade regrade {now.out} PATH` says where they are")
    if now.roster and not now.roster.is_file():
        raise Mistake(f"the roster was at `{now.roster}` and is not there: put it back")
    return now


def _path(kind: type, value: str) -> Path:
    return Path(value)
