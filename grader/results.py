"""The folder of results: a folder a student with their reports, each written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from grader import gradebook
from grader import report as reports
from grader.errors import CourseError
from grader.faults import Mistake
from grader.gradebook import Gradebook, to_csv, to_dict, visible
from grader.report import EXIT_BROKEN, Report

REPORT, BROKEN, PARTIAL = "report.json", "report.broken.json", ".partial.json"
PAGE, STUDENTS_PAGE = "report.html", "student.html"
SCORES, INDEX, SUMMARY = "scores.csv", "index.html", "summary.json"
ORDER = "batch.json"  # how the batch was run, see order.py
SCORES_BEFORE = "scores.before.csv"
SIMILARITY = ("similarity.csv", "similarity.html")
RESERVED = (SCORES, SCORES_BEFORE, INDEX, SUMMARY, ORDER, *SIMILARITY)
KEPT = " ._-+@,'()"
LONGEST_BYTES = 100


@dataclass(frozen=True, slots=True)
class Conditions:
    """All that a report hangs on beside the submission: where one of these changed, it is graded again."""

    course_digest: str
    grader_version: str
    seed_id: str
    isolation: str
    profile: str
    public_only: bool

    def hold_for(self, report: Report, digest: str) -> bool:
        """Whether a report on a submission of this digest would come out the same again."""
        same = all(getattr(report, name) == getattr(self, name) for name in self.__slots__)
        return same and report.submission.digest == digest and report.exit_status != EXIT_BROKEN


@dataclass(frozen=True, slots=True)
class Shelf:
    """One student's folder of results."""

    folder: Path

    def kept(self, name: str = REPORT) -> Report | None:
        """The report that lies there; None where there is none that can be read."""
        try:
            return reports.from_json((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, CourseError):
            return None

    def keep(self, report: Report) -> None:
        """Write a report, in full and as its student may see it; a broken one never over a good one."""
        from grader.render import html

        before = self.kept()
        if report.exit_status == EXIT_BROKEN and before and before.exit_status != EXIT_BROKEN:
            reports.write(self.folder / BROKEN, reports.to_json(report))
            return
        student = reports.student_view(report)
        reports.write(self.folder / PAGE, html.render(report))
        reports.write(self.folder / STUDENTS_PAGE, html.render(student))
        reports.write(self.folder / REPORT, reports.to_json(report))  # last: with it a submission is done
        for stale in (
            self.folder / BROKEN,
            *self.folder.glob(".*"),
        ):  # a part, or what a kill left half written
            stale.unlink(missing_ok=True)

    def keep_part(self, report: Report) -> None:
        """Write a report that lacks the stages by the clock."""
        reports.write(self.folder / PARTIAL, reports.to_json(report))


def write(out: Path, book: Gradebook) -> tuple[Path, ...]:
    """Write what is about the whole class; name the files."""
    from grader.render import index

    files = {
        SCORES: to_csv(book),
        INDEX: index.render(book, report=PAGE),
        SUMMARY: json.dumps(to_dict(book), ensure_ascii=False, indent=1, allow_nan=False) + "\n",
    }
    for name, text in files.items():
        reports.write(out / name, text)
    return tuple(out / name for name in files)


def load(out: Path) -> Gradebook:
    """Read back what `write` wrote.

    Raises Mistake where `out` is no folder of results, or another version's.
    """
    path = out / SUMMARY
    try:
        return gradebook.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        if not path.exists() and (out / ORDER).is_file():
            raise Mistake(f"`{out}` is not finished: run the same `grade batch` again") from error
        what = f"`{out}` is no folder of results, as `grade batch … --out {out}` writes it"
        raise Mistake(f"{what}: {SUMMARY}: {error}") from error
    except CourseError as error:
        raise Mistake(
            f"`{path}`: {error}; run the same `grade batch` again, which keeps the reports"
        ) from error


def label(key: str) -> str:
    """A student's key fit to show: unchanged where it is, else with a mark that tells it from others."""
    text = key.encode("utf-8", "backslashreplace").decode()
    plain = visible(text)[:LONGEST_BYTES].strip()
    return plain if plain == key else f"{plain}~{_mark(key)}"


def folders(keys: Iterable[str]) -> dict[str, str]:
    """A name for each student's folder: theirs where it is harmless and nobody else's, else with a mark.

    Harmless is one path component of plain characters, not hidden and not one of the files beside it. The
    mark hangs on the key alone.
    """
    plain = {key: _plain(key) for key in keys}
    taken = [name.casefold() for name in plain.values()]
    return {
        key: name if name == _normal(key) and taken.count(name.casefold()) == 1 else f"{name}~{_mark(key)}"
        for key, name in plain.items()
    }


def _plain(key: str) -> str:
    kept = "".join(c if c.isalnum() or c in KEPT else "_" for c in _normal(key))
    cut = kept.encode()[:LONGEST_BYTES].decode("utf-8", "ignore").strip(" .-")
    return f"{cut}_" if cut.casefold() in RESERVED else cut or "_"


def _normal(key: str) -> str:
    return unicodedata.normalize("NFC", key)


def _mark(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
