"""`grade batch`: everybody graded once, whatever happens to one of them or to the run."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from grader import __version__, batch, destination
from grader import course as courses
from grader.cli import cli
from grader.course import Course, Stage
from grader.errors import CourseError, SandboxError
from grader.hardware import FALLBACK
from grader.marking import Done, Job
from grader.outcome import Check, Outcome, Part, Verdict, Visibility
from grader.report import Machine, Report, StageResult, from_json
from grader.session import Options, missing_layers, not_carried_forward
from grader.submission import Submission

MANIFEST = """
[course]
title = "Tiny"
version = "1"
"""
STAGE = """
[[stage]]
slug = "stage{n}"
title = "Stage {n}"
file = "stage{n}_part.py"
points = 10
hidden_points = 4
summary = "s"
hints = ["a", "b", "c"]
"""
PUBLIC = '''
import pytest

@pytest.mark.check(weight=2{clock})
def test_answer(student):
    """The answer is right."""
    assert student.answer() == 42, "not 42"
'''
HIDDEN = '''
def test_other(student):
    """The other answer is right."""
    assert student.other() == 6174, "the secret is 6174"
'''
RIGHT = "def answer():\n    return 42\n\ndef other():\n    return 6174\n"
ONE, TWO = "stage1_part.py", "stage2_part.py"
SIDE_BY_SIDE: list[int] = []  # of the passes so far


@pytest.fixture
def course(tmp_path: Path) -> Course:
    """Two stages, of which the second has a check by the clock."""
    return lay_course(tmp_path / "course")


def lay_course(root: Path) -> Course:
    for folder in ("exercises", "tests_public", "tests_hidden", "hardware_profiles"):
        (root / folder).mkdir(parents=True)
    manifest = MANIFEST + STAGE.format(n=1) + STAGE.format(n=2)
    (root / "exercises" / "stages.toml").write_text(manifest)
    (root / "exercises" / "gpt2.py").write_text("class Config:\n    pass\n")
    for number, clock in ((1, ""), (2, ", clock=True")):
        (root / "tests_public" / f"test_stage{number}_part.py").write_text(PUBLIC.format(clock=clock))
        (root / "tests_hidden" / f"test_stage{number}_part.py").write_text(HIDDEN)
    return courses.load(root)


class FakeSession:
    """Grades by what the first stage's file says, and remembers what it graded, a line a stage and part.

    Each stage has one check, the second's is by the clock.
    """

    graded: list[str]

    def __init__(self, course: Course, options: Options) -> None:
        self.course, self.options = course, options

    def grade(self, submission: Submission, stages: Sequence[Stage], part: Part, **_: object) -> Report:
        says = submission.files.get(ONE, b"").decode()
        if says == "sandbox":
            raise SandboxError("no worker")
        if says == "surprise":
            raise KeyError("surprise")
        if says == "course":
            raise CourseError("no checks")
        mine = [
            stage for stage in stages if part is Part.ALL or (stage.slug == "stage2") is (part is Part.TIMED)
        ]
        self.graded += [f"{submission.info.id}:{stage.slug}" for stage in mine]
        results = tuple(result(stage, says, is_run=stage in mine) for stage in stages)
        notes = ("isolated", *not_carried_forward(stages, results))
        return Report(
            submission.info, "Tiny", "1", self.course.digest, __version__, f"given:{self.options.seed}",
            Machine(), FALLBACK, "confined", {}, self.options.public_only, "2026-11-29T10:00:00", 2.0,
            results, notes=notes,
        )  # fmt: skip


def result(stage: Stage, says: str, *, is_run: bool) -> StageResult:
    verdict = Verdict(says) if says in set(Verdict) else Verdict.PASS if says else Verdict.TODO
    check = Check(f"{stage.slug}.answer", "The answer", Visibility.HIDDEN)
    earned = stage.points * (verdict is Verdict.PASS)
    outcomes = (Outcome(check, verdict, 0.5, "why"),) * is_run
    is_scored = not is_run or verdict is not Verdict.BROKEN
    return StageResult(
        stage.slug, stage.title, stage.file, earned * is_run, stage.points, outcomes, is_scored
    )


@pytest.fixture
def graded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the fake sessions grade, in order; it is cleared by the test."""
    seen: list[str] = []
    monkeypatch.setattr(FakeSession, "graded", seen, raising=False)
    monkeypatch.setattr("grader.session.level_of", lambda wanted: "confined" if wanted == "auto" else wanted)
    monkeypatch.setattr(batch.pool, "run", one_by_one())
    return seen


def one_by_one(
    stop_after: int = -1, kill: str = "", before: Callable[[], None] = lambda: None
) -> Callable[..., Iterator[tuple[Job, Done]]]:
    """A pool without processes; it is interrupted after so many, and a grader dies over one."""

    def run(
        course: Course,
        options: Options,
        work: Callable[[FakeSession, Job], Done],
        items: Iterable[Job],
        *,
        jobs: int,
        lost: Callable[[Job], Done],
    ) -> Iterator[tuple[Job, Done]]:
        SIDE_BY_SIDE.append(jobs)
        before()
        for number, job in enumerate(items):
            if number == stop_after:
                raise KeyboardInterrupt
            yield job, lost(job) if job.name == kill else work(FakeSession(course, options), job)

    return run


@pytest.fixture
def class_(tmp_path: Path) -> Path:
    folder = tmp_path / "class"
    for name, says in (("ada", "pass"), ("bob", "fail"), ("cyd", "timeout")):
        hand_in(folder, name, says)
    return folder


def hand_in(class_: Path, name: str, text: str, file: str = ONE) -> None:
    (class_ / name).mkdir(parents=True, exist_ok=True)
    (class_ / name / file).write_text(text)


def grade(course: Course, class_: Path, *options: str, to: Path | None = None) -> Result:
    out = to or class_.parent / "out"
    words = ["--course", str(course.root), "batch", str(class_), "--out", str(out), "--seed", "s", *options]
    return CliRunner().invoke(cli, words)


def scores(class_: Path) -> dict[str, dict[str, str]]:
    text = (class_.parent / "out" / "scores.csv").read_text(encoding="utf-8")
    return {row["student"]: row for row in csv.DictReader(text.splitlines())}


def kept(class_: Path, name: str) -> Report:
    return from_json((class_.parent / "out" / name / "report.json").read_text(encoding="utf-8"))


def test_everybody_has_reports_and_a_line(course: Course, class_: Path, graded: list[str]) -> None:
    done = grade(course, class_, "--jobs", "1")
    assert done.exit_code == 1, done.output
    assert graded == [f"{name}:stage{n}" for name in ("ada", "bob", "cyd") for n in (1, 2)]
    out = class_.parent / "out"
    assert sorted(p.name for p in out.iterdir()) == [
        ".lock", "ada", "batch.json", "bob", "cyd", "index.html", "scores.csv", "summary.json"
    ]  # fmt: skip
    assert sorted(p.name for p in (out / "ada").iterdir()) == ["report.html", "report.json", "student.html"]
    assert [scores(class_)[n]["total"] for n in ("ada", "bob", "cyd")] == ["20", "0", "0"]
    assert scores(class_)["cyd"]["timeout"] == "2"
    assert "3 students: 3 graded" in done.stdout


@pytest.mark.parametrize(
    ("name", "account"),
    [
        ("doejane_77_8_stage1_part.py", "canvas:77:doejane"),
        ("Jane Doe_77_assignsubmission_file_", "moodle:77:Jane Doe"),
        ("doejane_77.py", ""),
    ],
)
def test_only_a_platforms_own_name_tells_an_account(
    name: str, account: str, course: Course, tmp_path: Path, graded: list[str]
) -> None:
    if name.endswith(".py"):
        (tmp_path / "class").mkdir()
        (tmp_path / "class" / name).write_text("pass")
    else:
        hand_in(tmp_path / "class", name, "pass")
    grade(course, tmp_path / "class")
    (row,) = json.loads((tmp_path / "out" / "summary.json").read_text())["rows"]
    assert row["account"] == account


def test_a_class_that_passes_everything_is_status_nought(
    course: Course, tmp_path: Path, graded: list[str]
) -> None:
    hand_in(tmp_path / "class", "ada", "pass")
    assert grade(course, tmp_path / "class").exit_code == 0


def test_stages_by_the_clock_are_graded_last_and_alone(
    course: Course, class_: Path, graded: list[str]
) -> None:
    SIDE_BY_SIDE.clear()
    done = grade(course, class_, "--jobs", "2")
    assert SIDE_BY_SIDE == [2, 1]
    assert [line.partition(":")[2] for line in graded] == ["stage1"] * 3 + ["stage2"] * 3
    report = kept(class_, "ada")
    assert [stage.slug for stage in report.stages] == ["stage1", "stage2"]
    assert (report.earned, report.seconds) == (20, 4.0)
    summary = json.loads((class_.parent / "out" / "summary.json").read_text())
    assert summary["seconds"]["checks"] == pytest.approx(3 * 2 * 0.5)
    assert "timed, one at a time: 3 to do" in done.stderr


def test_a_report_of_two_parts_says_what_one_in_one_piece_says(
    course: Course, class_: Path, graded: list[str]
) -> None:
    manifest = course.root / courses.MANIFEST
    manifest.write_text(manifest.read_text() + STAGE.format(n=3))
    (course.root / "tests_public" / "test_stage3_part.py").write_text(PUBLIC.format(clock=""))
    course = courses.load(course.root)
    grade(course, class_, "--jobs", "2")
    parts = kept(class_, "bob")
    assert [line.partition(":")[2] for line in graded] == ["stage1", "stage3"] * 3 + ["stage2"] * 3
    grade(course, class_, "--jobs", "1", "--force")
    assert len(parts.notes) == 3
    assert replace(parts, seconds=2.0) == kept(class_, "bob")


def test_nothing_is_graded_twice(course: Course, class_: Path, graded: list[str]) -> None:
    first = grade(course, class_)
    graded.clear()
    again = grade(course, class_)
    assert graded == []
    assert again.stdout == first.stdout
    assert grade(course, class_, "--force").exit_code == 1
    assert len(graded) == 6


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_interrupted_batch_goes_on_where_it_stopped(
    jobs: str, after: int, course: Course, class_: Path, graded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch.pool, "run", one_by_one(stop_after=after))
    assert grade(course, class_, "--jobs", jobs).exit_code == 130
    assert len(graded) == after * (2 if jobs == "1" else 1)
    monkeypatch.setattr(batch.pool, "run", one_by_one())
    assert grade(course, class_, "--jobs", jobs).exit_code == 1
    assert sorted(graded) == sorted(f"{name}:stage{n}" for name in ("ada", "bob", "cyd") for n in (1, 2))
    assert len(scores(class_)) == 3


def test_what_was_only_timed_is_not_graded_again_but_for_timing(
    course: Course, class_: Path, graded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = one_by_one(), []

    def second_pass_stops(*args: object, **more: object) -> Iterator[tuple[Job, Done]]:
        calls.append(1)
        return (one_by_one(stop_after=1) if len(calls) == 2 else real)(*args, **more)

    monkeypatch.setattr(batch.pool, "run", second_pass_stops)
    assert grade(course, class_, "--jobs", "2").exit_code == 130
    graded.clear()
    monkeypatch.setattr(batch.pool, "run", real)
    grade(course, class_, "--jobs", "2")
    assert graded == ["bob:stage2", "cyd:stage2"]


def test_what_changed_is_graded_again_and_nothing_else(
    course: Course, class_: Path, graded: list[str]
) -> None:
    grade(course, class_, "--jobs", "1")
    graded.clear()
    hand_in(class_, "bob", "pass")
    grade(course, class_, "--jobs", "1")
    assert graded == ["bob:stage1", "bob:stage2"]
    assert scores(class_)["bob"]["total"] == "20"


def test_a_changed_course_or_option_is_graded_again(course: Course, class_: Path, graded: list[str]) -> None:
    grade(course, class_)
    graded.clear()
    grade(course, class_, "--public-only")
    assert len(graded) == 6
    path = course.public_tests(course.stages[0])
    path.write_text(path.read_text() + "# changed\n")
    graded.clear()
    grade(course, class_, "--public-only")
    assert len(graded) == 6


def test_what_cannot_be_read_has_a_report_that_says_so(
    course: Course, class_: Path, graded: list[str]
) -> None:
    (class_ / "eve.zip").write_bytes(b"junk")
    (class_ / "fay").symlink_to(class_ / "ada")
    done = grade(course, class_)
    assert done.exit_code == 2
    assert scores(class_)["eve"]["state"] == scores(class_)["fay"]["state"] == "unreadable"
    assert scores(class_)["eve"]["total"] == ""
    assert "can't be read: " in kept(class_, "eve").submission.notes[0]
    assert "not a readable archive" in (class_.parent / "out" / "eve" / "student.html").read_text()
    assert scores(class_)["ada"]["total"] == "20"
    graded.clear()
    grade(course, class_)
    assert graded == []


@pytest.mark.parametrize("says", ["sandbox", "surprise"])
def test_a_fault_of_ours_over_one_spoils_nobody_elses_grade(
    says: str, course: Course, class_: Path, graded: list[str]
) -> None:
    hand_in(class_, "bob", says)
    done = grade(course, class_)
    assert done.exit_code == 3
    assert scores(class_)["bob"]["state"] == "broken"
    assert "the grader failed over it" in scores(class_)["bob"]["remarks"]
    assert [scores(class_)[n]["state"] for n in ("ada", "cyd")] == ["graded", "graded"]
    assert "bob: the grader failed over it" in done.stderr


def test_who_cannot_be_read_is_named_the_first_few(course: Course, class_: Path, graded: list[str]) -> None:
    for number in range(10):
        (class_ / f"eve{number}.zip").write_bytes(b"junk")
    done = grade(course, class_)
    assert "\nunreadable: eve0, eve1, eve2, eve3, eve4, eve5, eve6, eve7, 2 more\n" in done.stdout


def test_a_fault_of_the_course_stops_at_once(course: Course, class_: Path, graded: list[str]) -> None:
    hand_in(class_, "bob", "course")
    done = grade(course, class_)
    assert done.exit_code == 2
    assert "the course: no checks" in done.stderr


def test_a_dead_grader_costs_one_submission_and_it_is_graded_the_next_time(
    course: Course, class_: Path, graded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch.pool, "run", one_by_one(kill="bob"))
    assert grade(course, class_).exit_code == 3
    assert scores(class_)["bob"]["state"] == "broken"
    graded.clear()
    monkeypatch.setattr(batch.pool, "run", one_by_one())
    assert grade(course, class_).exit_code == 1
    assert sorted(graded) == ["bob:stage1", "bob:stage2"]


def test_who_was_lost_before_timing_is_not_timed(
    course: Course, class_: Path, graded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def mend() -> None:
        hand_in(class_, "bob", "pass" if graded else "sandbox")

    monkeypatch.setattr(batch.pool, "run", one_by_one(before=mend))
    assert grade(course, class_, "--jobs", "2").exit_code == 3
    assert not any(line.startswith("bob") for line in graded)


def test_what_changes_between_its_parts_is_not_mixed(
    course: Course, class_: Path, graded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def change() -> None:
        if len(graded) == 3:
            hand_in(class_, "ada", "timeout")

    monkeypatch.setattr(batch.pool, "run", one_by_one(before=change))
    assert grade(course, class_, "--jobs", "2").exit_code == 3
    assert "it changed while it was graded" in scores(class_)["ada"]["remarks"]
    assert scores(class_)["ada"]["total"] == ""


@pytest.mark.parametrize("says", ["broken", "sandbox"])
def test_a_fault_of_ours_takes_no_earlier_grade_away(
    says: str, course: Course, class_: Path, graded: list[str]
) -> None:
    grade(course, class_)
    before = kept(class_, "ada")
    hand_in(class_, "ada", says)
    assert grade(course, class_).exit_code == 3
    assert kept(class_, "ada") == before
    row = scores(class_)["ada"]
    assert (row["state"], row["total"]) == ("broken", "20")
    assert "these are the points of 2026-11-29T10:00:00" in row["remarks"]
    graded.clear()
    grade(course, class_)
    assert bool(graded) == (says == "broken")


def test_the_roster_lists_the_missing_and_the_strangers(
    course: Course, class_: Path, graded: list[str]
) -> None:
    roster = class_.parent / "roster.csv"
    roster.write_bytes('\ufeffname,id\r\n"Lovelace, Ada",ada\r\n"Roe, Bob",b7\r\nBob,bob\r\n'.encode())
    done = grade(course, class_, "--roster", str(roster))
    assert {(s, row["state"], row["name"]) for s, row in scores(class_).items()} == {
        ("ada", "graded", "Lovelace, Ada"),
        ("b7", "missing", "Roe, Bob"),
        ("bob", "graded", "Bob"),
        ("cyd", "graded", ""),
    }
    assert scores(class_)["b7"]["total"] == ""
    assert "not on the roster: cyd" in done.stdout
    assert "not on the roster" in (class_.parent / "out" / "index.html").read_text()


def test_hostile_names_write_nowhere_but_in_their_own_folder(
    course: Course, class_: Path, graded: list[str]
) -> None:
    for name in (
        "=1+1",
        "up\\..",
        "\x1b[2Jx",
        os.fsdecode(b"\xff"),
        "a\nb",
        "index.html",
        "<script>x",
        "n" * 250,
    ):
        hand_in(class_, name, "pass")
    roster = class_.parent / "roster.csv"
    roster.write_text("id,name\n../../gone,ada\n,\n")
    before = sorted(class_.parent.rglob("*"))
    done = grade(course, class_, "--roster", str(roster))
    assert done.exit_code == 1, done.output
    out = class_.parent / "out"
    assert [p for p in sorted(class_.parent.rglob("*")) if out not in (p, *p.parents)] == before
    folders = [path for path in out.iterdir() if path.is_dir()]
    assert len(folders) == 11
    assert all((folder / "report.json").is_file() for folder in folders)
    assert "\x1b" not in done.stdout + (out / "scores.csv").read_text() + (out / "index.html").read_text()
    assert len(scores(class_)) == 11


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--isolation", "none"), "would run strangers' code inside the grader"),
        (("--on-duplicate", "error"), "more than once: ada"),
        (("--roster", "nonesuch.csv"), "the roster `nonesuch.csv` can't be read"),
        (("--profile", "nonesuch"), "no hardware profile `nonesuch`"),
    ],
    ids=["isolation", "duplicates", "roster", "profile"],
)
def test_what_cannot_be_graded_is_said_before_anything_is(
    options: tuple[str, ...], said: str, course: Course, class_: Path, graded: list[str]
) -> None:
    (class_ / "ada.zip").write_bytes(b"junk")
    done = grade(course, class_, *options)
    assert (done.exit_code, graded) == (2, [])
    assert said in done.stderr
    assert not (class_.parent / "out").exists()


def test_less_than_confined_is_refused_unless_told(
    course: Course, class_: Path, graded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("grader.session.missing_layers", lambda: "the kernel has no Landlock")
    done = grade(course, class_)
    assert done.exit_code == 3
    assert "`--isolation process` does with less" in done.stderr


def test_two_real_graders_grade_a_class(course: Course, tmp_path: Path) -> None:
    class_ = tmp_path / "class"
    for file in (ONE, TWO):
        hand_in(class_, "ada", RIGHT, file)
        hand_in(class_, "bob", RIGHT.replace("6174", "1"), file)
    hand_in(class_, "eve", "import os\nos._exit(0)\n")
    level = ("--isolation", "process") if missing_layers() else ()
    done = grade(course, class_, "--jobs", "2", *level)
    assert done.exit_code == 1, done.output
    assert [scores(class_)[name]["total"] for name in ("ada", "bob", "eve")] == ["20", "12", "0"]
    assert "6174" in (tmp_path / "out" / "bob" / "report.html").read_text()
    assert "6174" not in (tmp_path / "out" / "bob" / "student.html").read_text()
    alone = tmp_path / "alone.json"
    words = ["all", "--submission", str(class_ / "bob"), "--seed", "s", "--instructor", "--json", str(alone)]
    CliRunner().invoke(cli, ["--course", str(course.root), *words, *level])
    verdicts = [[o.verdict for o in stage.outcomes] for stage in from_json(alone.read_text()).stages]
    assert [[o.verdict for o in stage.outcomes] for stage in kept(class_, "bob").stages] == verdicts
    assert replace(kept(class_, "bob").submission, notes=()) == from_json(alone.read_text()).submission


def test_likeness_is_looked_for_only_when_asked_and_reaches_no_grade(
    course: Course, class_: Path, graded: list[str]
) -> None:
    copied = "\n".join(f"    if value > {n}:\n        return [{n}] * value - {n}" for n in range(30))
    for name in ("ada", "bob"):
        hand_in(class_, name, f"def part(value):\n{copied}\n", TWO)
    grade(course, class_)
    out = class_.parent / "out"
    before = {path: path.read_bytes() for path in out.rglob("*") if path.suffix in (".json", ".html", ".csv")}
    assert not (out / "similarity.csv").exists()
    done = grade(course, class_, "--similarity")
    assert "ada,bob,stage2,100," in (out / "similarity.csv").read_text()
    assert f"wrote {out / 'similarity.html'}" in done.stdout
    changed = {path.name for path, content in before.items() if path.read_bytes() != content}
    assert changed <= {"summary.json", "index.html", "batch.json"}  # which tell the seconds and the options


def test_a_batch_is_held_against_its_due_date(course: Course, class_: Path, graded: list[str]) -> None:
    for name, when_s in (("ada", 1_000_000), ("bob", 1_000_000), ("cyd", 900_000)):
        os.utime(class_ / name / ONE, (when_s, when_s))
    roster = class_.parent / "roster.csv"
    roster.write_text("id,extension\nada,\nbob,24\ncyd,\n")
    due = ("--due", "1970-01-12T14:40+01:00", "--late", "25", "--roster", str(roster))  # 6 min before 1e6 s
    done = grade(course, class_, *due)
    assert [scores(class_)[n]["hours late"] for n in ("ada", "bob", "cyd")] == ["", "", ""]
    assert "nothing taken off: anybody" in done.stdout
    done = grade(course, class_, *due, "--file-times")
    rows = scores(class_)
    assert [(rows[n]["late"], rows[n]["hours late"]) for n in ("ada", "bob", "cyd")] == [
        ("late", "0.12"), ("", "0"), ("", "0")
    ]  # fmt: skip
    assert (rows["ada"]["total"], rows["ada"]["after penalty"]) == ("20", "15")
    assert "1 late, 1 of them with points taken off" in done.stdout
    graded.clear()
    assert grade(course, class_, "--due", "1970-01-12T14:40").exit_code == 2
    assert graded == []


# Where the results go


def everything(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("class", "is where the submissions are"),
        (".", "holds the submissions"),
        ("class/ada", "is not empty and no batch made it"),
        ("class/ada/results", "lies inside of what is taken for a submission"),
        ("class/new/results", "lies inside of what is taken for a submission"),
        ("course", "is not empty and no batch made it"),
        ("course/exercises", "is in the course's own folders"),
        ("course/solutions/results", "is in the course's own folders"),
        ("course/tests_hidden", "is in the course's own folders"),
        ("course/tests_public/a/b", "is in the course's own folders"),
        ("course/docs", "is in the course's own folders"),
        ("course/hardware_profiles/x", "is in the course's own folders"),
        ("thesis", "is not empty and no batch made it"),
        ("course/../class/../thesis", "is not empty and no batch made it"),
        ("/dev/null/x", "can't be written"),
    ],
)
def test_results_go_nowhere_where_something_else_is(
    out: str, said: str, course: Course, class_: Path, tmp_path: Path, graded: list[str]
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "scores.csv").write_text("mine")
    before = everything(tmp_path)
    done = grade(course, class_, to=tmp_path / out)
    assert (done.exit_code, graded) == (2, []), done.output
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert everything(tmp_path) == before


@pytest.mark.parametrize("out", ["class/results", "course/results", "course/results/week1", "empty", "a/b"])
def test_results_may_go_beside_the_submissions_and_into_the_course(
    out: str, course: Course, class_: Path, tmp_path: Path, graded: list[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        done = grade(course, class_, to=tmp_path / out)
        assert done.exit_code == 1, done.output
    assert "3 students: 3 graded" in done.stdout


def test_results_may_go_beside_the_submissions_in_the_one_folder_around_them(
    course: Course, class_: Path, graded: list[str]
) -> None:
    class_.rename(class_.with_name("inner"))
    class_.mkdir()
    class_.with_name("inner").rename(class_ / "inner")
    assert "3 graded" in grade(course, class_, to=class_ / "inner" / "results").stdout
    assert "lies inside" in grade(course, class_, to=class_ / "other" / "results").stderr


def test_results_may_go_anywhere_beside_nbgraders_submissions(
    course: Course, class_: Path, graded: list[str]
) -> None:
    class_.rename(class_.with_name("submitted"))
    class_.mkdir()
    class_.with_name("submitted").rename(class_ / "submitted")
    assert "3 graded" in grade(course, class_, to=class_ / "graded" / "ps1").stdout


def test_a_batch_killed_at_its_first_write_goes_on(course: Course, class_: Path, graded: list[str]) -> None:
    out = class_.parent / "out"
    out.mkdir()
    for name in (".lock", ".batch.json.x1y2", ".DS_Store"):
        (out / name).touch()
    assert grade(course, class_).exit_code == 1


def test_a_second_batch_leaves_the_first_alone(course: Course, class_: Path, graded: list[str]) -> None:
    out = class_.parent / "out"
    with destination.held(out):
        done = grade(course, class_)
    assert (done.exit_code, graded) == (2, [])
    assert "another `grade batch` or `grade regrade` is at work" in done.stderr
    assert not (out / "batch.json").exists()
    assert grade(course, class_).exit_code == 1


def test_two_batches_may_go_on_side_by_side_elsewhere(
    course: Course, class_: Path, graded: list[str]
) -> None:
    with destination.held(class_.parent / "other"):
        assert grade(course, class_).exit_code == 1


def test_a_killed_batch_holds_nothing(course: Course, class_: Path, graded: list[str]) -> None:
    out = class_.parent / "out"
    life = "import os, pathlib, sys; from grader import destination\n"
    life += "with destination.held(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", life, str(out)], check=False).returncode == -9
    assert grade(course, class_).exit_code == 1


def test_nothing_is_said_to_be_no_results_that_is_only_not_finished(
    course: Course, class_: Path, graded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch.pool, "run", one_by_one(stop_after=1))
    assert grade(course, class_).exit_code == 130
    out = str(class_.parent / "out")
    for words in (["export", out, "--to", "otter", "--out", f"{out}.csv"], ["regrade", out]):
        done = CliRunner().invoke(cli, ["--course", str(course.root), *words])
        assert done.exit_code == 2
        assert done.stderr == f"grade: `{out}` is not finished: run the same `grade batch` again\n"
