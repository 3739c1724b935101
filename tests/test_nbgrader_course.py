"""A course of nbgrader's own, from `nbgrader quickstart` to its exports, driven by the real commands.

It needs nbgrader, here or where the variable NBGRADER names its command; `browser` needs Chromium, too.
"""

from __future__ import annotations

import csv
import html
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from grader import course as courses
from grader import results, samples
from grader.gradebook import Gradebook, State

ROOT = Path(__file__).resolve().parents[1]
COURSE = courses.load(ROOT)
HERE = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
NBGRADER = os.environ.get("NBGRADER") or shutil.which("nbgrader", path=HERE)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
STAGE = COURSE.stage("stage4")
ODD = 'Lovelace, "Ada" o\'Neil é'
# Who hands in what: a sample of ours, the solution, nothing of their own, half a file.
CLASS = {
    "right": "",
    ODD: "wrong/bytes_in_bits",
    "untouched": None,
    "mallory": "hostile/patched_kernel",
    "eve": "hostile/rewrites_later_cells",
    "cut": "",
    "evil": "markup",
}
MARKUP = """def cache_bytes(past):
    raise ValueError("<script>alert(1)</script><img src=x onerror=alert(1)>")
"""
DUE, ON_TIME, LATE = "2026-11-01 12:00:00 UTC", "2026-11-01 11:00:00 UTC", "2026-11-02 11:00:00 UTC"
HALF = """
from nbgrader.plugins import BasePlugin


class Half(BasePlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return score / 2
"""

pytestmark = pytest.mark.skipif(
    NBGRADER is None, reason="nbgrader is not installed; NBGRADER names its command elsewhere"
)


@dataclass(frozen=True)
class Run:
    """Where nbgrader's course lies, ours, and our results."""

    place: Path
    course: Path
    results: Path

    @property
    def db(self) -> Path:
        return self.place / "gradebook.db"

    @property
    def gradebook(self) -> tuple[str, ...]:
        return "--gradebook", f"sqlite:///{self.db}"

    def nbgrader(self, *words: str, fails: bool = False) -> str:
        return self._done([str(NBGRADER), *words], fails=fails)

    def grade(self, *words: str, fails: bool = False) -> str:
        python = Path(str(NBGRADER)).parent / "python"
        return self._done(
            [str(python), "-c", "from grader.cli import main; main()", "--course", str(self.course), *words],
            fails=fails,
        )

    def _done(self, command: list[str], *, fails: bool) -> str:
        path = f"{Path(str(NBGRADER)).parent}{os.pathsep}{os.environ['PATH']}"
        there = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, cwd=self.place, env=there, capture_output=True, text=True, timeout=600, check=False
        )
        assert fails or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def grade_into_nbgrader(self) -> str:
        return self.grade("export", str(self.results), "--to", "nbgrader", *self.gradebook)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.db) as database:
            return database.execute(query).fetchall()

    def scores(self) -> dict[tuple[str, str], tuple[float | None, float | None, int]]:
        """By student and cell: the machine's score, a person's, whether it waits for a person."""
        query = """
            select a.student_id, c.name, g.auto_score, g.manual_score, g.needs_manual_grade from grade g
            join base_cell c on c.id = g.cell_id join submitted_notebook n on n.id = g.notebook_id
            join submitted_assignment a on a.id = n.assignment_id
        """
        return {(student, cell): tuple(rest) for student, cell, *rest in self.rows(query)}  # type: ignore[misc]

    def machine(self, student: str) -> float:
        scores = [auto for (who, _), (auto, _, _) in self.scores().items() if who == student]
        return round(sum(score or 0.0 for score in scores), 2)

    @cached_property
    def book(self) -> Gradebook:
        return results.load(self.results)

    def ours(self, student: str) -> float:
        (row,) = (row for row in self.book.rows if row.student == student)
        return row.stages.get("stage4", 0.0)


def of_one_stage(place: Path) -> Path:
    """This course with stage 4 alone, which is quick to grade."""
    for name in ("exercises", "solutions", "tests_public", "tests_hidden", "hardware_profiles"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    manifest = (place / "exercises" / "stages.toml").read_text(encoding="utf-8")
    head, *tables = manifest.split("[[stage]]")
    only = next(table for table in tables if 'slug = "stage4"' in table)
    (place / "exercises" / "stages.toml").write_text(f"{head}[[stage]]{only}", encoding="utf-8")
    asked = (place / "exercises" / "explain.toml").read_text(encoding="utf-8").split("[[")
    text = "".join(f"[[{table}" for table in asked if table.startswith("stage4]]"))
    (place / "exercises" / "explain.toml").write_text(text, encoding="utf-8")
    return place


def answer_of(sample: str) -> str:
    """What stands in an answer's cell: a sample's file, what would be markup, or else the solution."""
    if sample == "markup":
        return MARKUP
    files = samples.load(ROOT / samples.SAMPLES / sample, COURSE).handed_in if sample else {}
    return (files.get(STAGE.file) or (ROOT / "solutions" / STAGE.file).read_bytes()).decode()


def handed_in(run: Run, student: str, sample: str | None) -> None:
    """Put a student's notebook where nbgrader collects them."""
    place = run.place / "submitted" / student / "kv"
    shutil.copytree(run.place / "release" / "kv", place)
    (place / "timestamp.txt").write_text(LATE if student == "right" else ON_TIME)
    path = place / "stage4.ipynb"
    book = json.loads(path.read_text(encoding="utf-8"))
    (answer,) = (c for c in book["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == STAGE.name)
    if sample is not None:
        answer["source"] = answer_of(sample)
    text = json.dumps(book)
    path.write_text(text[: len(text) // 2] if student == "cut" else text, encoding="utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The whole way up to the gradebook, with scores that nbgrader gave before ours."""
    top = tmp_path_factory.mktemp("nbgrader")
    run = Run(top / "c101", of_one_stage(top / "ours"), top / "results")
    quick = Run(top, run.course, run.results)
    quick.nbgrader("quickstart", "c101")
    run.grade("notebook", "build", "--out", ".")
    run.nbgrader("generate_assignment", "kv", "--create")
    for student, sample in CLASS.items():
        handed_in(run, student, sample)
    with (run.place / "nbgrader_config.py").open("a") as file:
        file.write('\nc.AssignLatePenalties.plugin_class = "half.Half"\n')
    (run.place / "half.py").write_text(HALF)
    run.nbgrader("db", "assignment", "add", "kv", f"--duedate={DUE}")
    run.nbgrader("autograde", "kv", "--no-execute", fails=True)  # one of them is cut off
    run.grade("batch", "submitted", "--out", str(run.results), fails=True)
    run.grade_into_nbgrader()
    return run


@pytest.mark.parametrize("student", CLASS)
def test_the_gradebook_has_our_points(student: str, run: Run) -> None:
    assert run.machine(student) == run.ours(student)
    assert run.ours(student) == (
        STAGE.points if student == "right" else pytest.approx(0, abs=STAGE.points - 0.1)
    )


def test_what_cheats_in_nbgraders_kernel_gains_nothing_here(run: Run) -> None:
    assert (run.machine("mallory"), run.machine("eve")) == (0.0, 0.0)


def test_what_can_not_be_read_waits_for_a_person(run: Run) -> None:
    (row,) = (row for row in run.book.rows if row.student == "cut")
    waits = {cell: waits for (who, cell), (_, _, waits) in run.scores().items() if who == "cut"}

    assert row.state is State.UNREADABLE
    assert waits
    assert all(waits.values())


def test_once_more_changes_nothing(run: Run) -> None:
    before = run.scores()
    run.grade_into_nbgrader()

    assert run.scores() == before


def test_lateness_costs_what_nbgraders_own_rule_says_of_our_points(run: Run) -> None:
    query = """
        select a.student_id, n.late_submission_penalty from submitted_notebook n
        join submitted_assignment a on a.id = n.assignment_id
    """
    penalties = {student: penalty for student, penalty in run.rows(query) if penalty is not None}

    assert penalties == {"right": STAGE.points / 2}


def test_feedback_and_export_agree_with_our_reports(run: Run) -> None:
    run.nbgrader("generate_feedback", "kv", "--force", fails=True)
    run.nbgrader("export", "--to", "grades.csv")

    for student in ("right", "untouched", "mallory", "eve", ODD):
        page = (run.place / "feedback" / student / "kv" / "stage4.html").read_text(encoding="utf-8")
        said = re.search(r"\(Score: ([\d.]+) / ([\d.]+)\)", page)
        assert said
        late = 0.5 if student == "right" else 1.0
        assert float(said[1]) == pytest.approx(run.ours(student) * late)
    page = (run.place / "feedback" / "evil" / "kv" / "stage4.html").read_text(encoding="utf-8")
    assert "alert(1)" in page
    assert "<script>alert(1)" not in page
    assert "<img src=x" not in page
    lines = (run.place / "grades.csv").read_text(encoding="utf-8").splitlines()
    (mallory,) = (line for line in lines if ",mallory," in line)
    (right,) = (line for line in lines if ",right," in line)
    raw, penalty, score, _ = map(float, right.rsplit(",", 4)[1:])
    assert float(mallory.rsplit(",", 4)[1]) == 0.0
    assert (raw, penalty, score) == (STAGE.points, STAGE.points / 2, STAGE.points / 2)


def test_what_people_gave_comes_back_and_goes_on(run: Run, tmp_path: Path) -> None:
    with sqlite3.connect(run.db) as database:
        database.execute(
            """
            update grade set manual_score = 0.75, needs_manual_grade = 0 where id in (
            select g.id from grade g join base_cell c on c.id = g.cell_id
            join submitted_notebook n on n.id = g.notebook_id
            join submitted_assignment a on a.id = n.assignment_id
            where c.name like '%-question-%' and a.student_id = ?)
            """,
            (ODD,),
        )
    asked = sum(who == ODD and "-question-" in cell for who, cell in run.scores())
    said = run.grade("notebook", "grades", str(run.results), *run.gradebook)
    after = results.load(run.results)
    (row,) = (row for row in after.rows if row.student == ODD)

    assert row.stages["by-hand"] == 0.75 * asked
    assert after.possible["by-hand"] == asked
    assert "not graded yet" in said
    run.grade("export", str(run.results), "--to", "otter", "--out", str(tmp_path / "otter.csv"))
    with (tmp_path / "otter.csv").open(newline="") as file:
        (line,) = (line for line in csv.DictReader(file) if line["file"] == ODD)
    assert float(line["by-hand"]) == 0.75 * asked
    scores = run.scores()
    run.grade_into_nbgrader()
    assert run.scores() == scores


def test_a_database_of_something_else_stays_as_it_is(run: Run, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("create table mine (x)")
    before = (tmp_path / "other.db").read_bytes()
    where = f"sqlite:///{tmp_path}/other.db"
    said = run.grade("export", str(run.results), "--to", "nbgrader", "--gradebook", where, fails=True)

    assert "is no gradebook of nbgrader's" in said
    assert (tmp_path / "other.db").read_bytes() == before


def test_a_wrong_configuration_stops_it_before_anything_is_written(run: Run, tmp_path: Path) -> None:
    shutil.copy(run.db, tmp_path / "gradebook.db")
    (tmp_path / "nbgrader_config.py").write_text("1 / 0\n")
    before = (tmp_path / "gradebook.db").read_bytes()
    words = ("export", str(run.results), "--to", "nbgrader", "--gradebook", str(tmp_path / "gradebook.db"))
    said = run.grade(*words, fails=True)

    assert "nbgrader_config.py` can't be used: ZeroDivisionError" in said
    assert "Traceback" not in said
    assert (tmp_path / "gradebook.db").read_bytes() == before


@pytest.mark.parametrize("student", ["mallory", "eve"])
def test_in_nbgraders_own_kernel_the_same_cheats_pass(student: str, run: Run, tmp_path: Path) -> None:
    place = tmp_path / "c102"
    shutil.copytree(run.place, place, ignore=shutil.ignore_patterns("autograded", "feedback"))
    there = Run(place, run.course, run.results)
    there.nbgrader("autograde", "kv", "--student", student)
    cells = {cell: auto for (who, cell), (auto, _, _) in there.scores().items() if who == student}
    checks = {
        cell: auto for cell, auto in cells.items() if "-question-" not in cell and "-grader" not in cell
    }

    assert checks
    assert all(checks.values()), checks
    there.grade_into_nbgrader()
    assert there.machine(student) == 0.0


# In a browser


@pytest.fixture
def formgrader(run: Run) -> Iterator[str]:
    """nbgrader's pages for graders, served on loopback for as long as a test takes; the address."""
    jupyter = Path(str(NBGRADER)).parent / "jupyter-server"
    there = {**os.environ, "PATH": f"{jupyter.parent}{os.pathsep}{os.environ['PATH']}"}
    command = [str(jupyter), "--no-browser", "--port=0", "--IdentityProvider.token=", "--allow-root"]
    enabled = "--ServerApp.jpserver_extensions={'nbgrader.server_extensions.formgrader': True}"
    log = run.place / "server.txt"
    with log.open("w") as file:
        server = subprocess.Popen([*command, enabled], cwd=run.place, env=there, stderr=file, stdout=file)
    try:
        yield _served(server, log)
    finally:
        server.terminate()
        server.wait(20)


def _served(server: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        found = re.search(r"http://127\.0\.0\.1:\d+/", log.read_text())
        if found:
            try:
                urllib.request.urlopen(f"{found[0]}api", timeout=10).read()
            except OSError:
                continue
            return found[0]
    raise AssertionError(log.read_text())


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_formgrader_shows_our_points_in_a_browser(run: Run, formgrader: str, tmp_path: Path) -> None:
    address = f"{formgrader}formgrader/gradebook/kv/stage4"
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"]
    done = subprocess.run(
        [*command, f"--user-data-dir={tmp_path}", "--dump-dom", address],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    page = html.unescape(re.sub(r"<[^>]+>", " ", done.stdout))

    assert f"{STAGE.points:g} /" in " ".join(page.split()), page
