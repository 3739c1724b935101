"""The command line: what each command calls, shows and writes, and how it exits."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from grader import run
from grader.cli import cli
from grader.course import Course, Stage
from grader.errors import CourseError, ProtocolError, SandboxError, SubmissionError
from grader.outcome import Check, Outcome, Verdict, Visibility
from grader.report import Machine, Report, StageResult, SubmissionInfo, from_json, to_json

SECRET = "tok3n-of-the-hidden-test"
MANIFEST = """
[course]
title = "The KV cache, by hand"
version = "0.1"
"""
STAGE = """
[[stage]]
slug = "stage{n}"
title = "Stage number {n}"
file = "stage{n}_part.py"
points = 10
hidden_points = 4
summary = "What stage {n} is about."
hints = ["nudge {n}", "push {n}", "answer {n}"]
"""


@dataclass(frozen=True, slots=True)
class FakeOptions:
    isolation: str = "auto"
    public_only: bool = False
    seed: str | None = None
    profile: str | None = None


class FakeSession:
    """A session whose checks end as `verdicts` says, by stage; an exception there is raised instead."""

    made: list[FakeSession]
    verdicts: dict[str, Sequence[Verdict] | BaseException]

    def __init__(self, course: Course, options: FakeOptions) -> None:
        self.course, self.options = course, options
        self.graded: list[tuple[str, list[str]]] = []
        self.is_open = True
        self.made.append(self)

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open = False

    def grade(
        self,
        submission: SubmissionInfo,
        stages: Sequence[Stage],
        *,
        on_start: Callable[[Stage, int], None] = lambda stage, count: None,
        on_outcome: Callable[[Stage, Outcome], None] = lambda stage, outcome: None,
    ) -> Report:
        self.graded.append((submission.id, [stage.slug for stage in stages]))
        results = []
        for stage in stages:
            verdicts = self.verdicts[stage.slug]
            if isinstance(verdicts, BaseException):
                raise verdicts
            outcomes = tuple(make_outcome(stage.slug, n, verdict) for n, verdict in enumerate(verdicts))
            on_start(stage, len(outcomes))
            for outcome in outcomes:
                on_outcome(stage, outcome)
            passed = all(o.verdict is Verdict.PASS for o in outcomes)
            earned = 10.0 if passed else 0.0
            results.append(StageResult(stage.slug, stage.title, stage.file, earned, 10.0, outcomes))
        return make_report(submission, *results)


def make_outcome(slug: str, number: int, verdict: Verdict) -> Outcome:
    """Every third check is hidden and has a secret in every field a student must not see."""
    title = f"check {number} of {slug}"
    if number % 3 != 2:
        return Outcome(Check(f"{slug}.c{number}", title), verdict, 0.1, f"message {number}")
    check = Check(f"{slug}.{SECRET}", title, Visibility.HIDDEN, 1.0, "positions")
    return Outcome(check, verdict, 0.1, SECRET, SECRET, SECRET, {SECRET: 1})


def make_report(submission: SubmissionInfo, *stages: StageResult) -> Report:
    return Report(
        submission=submission,
        course_title="T",
        course_version="1",
        course_digest="c",
        grader_version="0",
        seed_id="s",
        machine=Machine(),
        profile="",
        isolation="none",
        layers={},
        public_only=False,
        started="2026-01-02T03:04:05Z",
        seconds=1.0,
        stages=stages,
    )


def fake_load(path: Path, course: Course) -> SubmissionInfo:
    if not path.exists():
        raise SubmissionError(f"`{path}` does not exist")
    return SubmissionInfo(path.name, "d")


@pytest.fixture
def course_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course of three stages, the working folder somewhere in it, and a fake session and submission."""
    root = tmp_path / "course"
    (root / "exercises" / "deep").mkdir(parents=True)
    (root / "exercises" / "stages.toml").write_text(MANIFEST + "".join(STAGE.format(n=n) for n in (1, 2, 3)))
    monkeypatch.chdir(root / "exercises" / "deep")
    FakeSession.made = []
    FakeSession.verdicts = {f"stage{n}": [Verdict.PASS] * 4 for n in (1, 2, 3)}
    for name, members in (
        ("grader.session", {"Session": FakeSession, "Options": FakeOptions}),
        ("grader.submission", {"load": fake_load}),
    ):
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # more would grade stages side by side, in real processes
    monkeypatch.delenv("GRADE_COURSE", raising=False)
    monkeypatch.delenv("GRADE_DEBUG", raising=False)
    return root


def grade(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="grade")


def last(root: Path) -> Report:
    return from_json((root / run.LAST).read_text(encoding="utf-8"))


def only_line(text: str) -> str:
    (line,) = text.strip().splitlines()
    return line


# ---- grading


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ([Verdict.PASS, Verdict.PASS], 0),
        ([Verdict.PASS, Verdict.SKIP, Verdict.PASS, Verdict.INCONCLUSIVE], 0),
        ([Verdict.PASS, Verdict.FAIL], 1),
        ([Verdict.TODO, Verdict.TODO], 1),
        ([Verdict.FAIL, Verdict.BROKEN], 3),
    ],
)
def test_the_exit_status_is_the_reports(course_root: Path, verdicts: list[Verdict], status: int) -> None:
    FakeSession.verdicts["stage2"] = verdicts

    assert grade("stage2").exit_code == status


def test_a_stage_command_grades_that_stage_of_the_exercises(course_root: Path) -> None:
    result = grade("stage2")

    assert [session.graded for session in FakeSession.made] == [[("exercises", ["stage2"])]]
    assert "check 0 of stage2" in result.stdout
    assert "10 of 10 points" in result.stdout
    assert not FakeSession.made[0].is_open


def test_all_grades_every_stage_in_one_session(course_root: Path) -> None:
    result = grade("all")

    assert [session.graded for session in FakeSession.made] == [
        [("exercises", ["stage1", "stage2", "stage3"])]
    ]
    assert "total  30 of 30 points" in result.stdout


def test_options_reach_the_session(course_root: Path) -> None:
    grade("stage1", "--isolation", "process", "--public-only", "--seed", "x", "--profile", "m1")

    assert FakeSession.made[0].options == FakeOptions("process", True, "x", "m1")


def test_results_go_to_stdout_and_nothing_else_does(course_root: Path, tmp_path: Path) -> None:
    result = grade("stage1", "--json", tmp_path / "r.json")

    assert "wrote" in result.stderr
    assert "wrote" not in result.stdout
    assert "check 0" not in result.stderr


def test_without_a_terminal_there_are_no_colours_and_no_progress(course_root: Path) -> None:
    result = grade("all")

    assert "\x1b" not in result.output
    assert "to run" not in result.output
    assert result.stderr == ""


def test_quiet_shows_points_alone(course_root: Path) -> None:
    result = grade("stage1", "-q")

    assert "check 0" not in result.stdout
    assert "10 of 10 points" in result.stdout


def test_what_was_shown_live_is_what_report_shows(course_root: Path) -> None:
    FakeSession.verdicts["stage2"] = [Verdict.RAISED, Verdict.FAIL, Verdict.FAIL, Verdict.TODO]
    FakeSession.verdicts["stage3"] = [Verdict.TODO, Verdict.TODO]
    live = grade("all").stdout

    shown = grade("report")

    assert shown.stdout == live
    assert shown.exit_code == 0


@pytest.mark.parametrize("option", ["--json", "--html", "--junit"])
def test_files_hold_the_students_view_unless_the_instructor_asks(
    course_root: Path, tmp_path: Path, option: str
) -> None:
    FakeSession.verdicts["stage1"] = [Verdict.FAIL] * 4
    student, instructor = tmp_path / "new" / "student", tmp_path / "instructor"

    grade("stage1", option, student)
    grade("stage1", option, instructor, "--instructor")

    assert SECRET not in student.read_text(encoding="utf-8")
    assert SECRET in instructor.read_text(encoding="utf-8")


def test_the_terminal_withholds_hidden_details_unless_the_instructor_asks(course_root: Path) -> None:
    FakeSession.verdicts["stage1"] = [Verdict.FAIL] * 4

    assert SECRET not in grade("stage1").output
    assert "look again at: positions" in grade("stage1").output
    assert SECRET in grade("stage1", "--instructor").output


def test_a_file_that_cannot_be_written_is_said_after_the_results(course_root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    result = grade("stage1", "--json", tmp_path / "file" / "r.json")

    assert result.exit_code == 2
    assert "can't be written" in only_line(result.stderr)
    assert "10 of 10 points" in result.stdout


# ---- the last report


def test_grading_the_exercises_keeps_the_report_in_the_students_view(course_root: Path) -> None:
    FakeSession.verdicts["stage1"] = [Verdict.FAIL] * 4

    grade("stage1", "--instructor")

    assert last(course_root).for_student
    assert SECRET not in to_json(last(course_root))


def test_naming_the_exercises_as_submission_is_the_same(course_root: Path) -> None:
    grade("stage1", "--submission", "..")

    assert last(course_root).stages[0].slug == "stage1"


def test_grading_another_submission_leaves_the_last_report_alone(course_root: Path, tmp_path: Path) -> None:
    grade("stage1")
    grade("stage2", "--submission", tmp_path)

    assert [stage.slug for stage in last(course_root).stages] == ["stage1"]


def test_a_fault_leaves_the_last_report_alone(course_root: Path) -> None:
    grade("stage1")
    FakeSession.verdicts["stage2"] = SandboxError("no worker")
    grade("stage2")

    assert [stage.slug for stage in last(course_root).stages] == ["stage1"]


def test_results_that_cannot_be_kept_do_not_change_the_verdict(course_root: Path) -> None:
    (course_root / "results").touch()

    result = grade("stage1")

    assert result.exit_code == 0
    assert "can't be written" in only_line(result.stderr)


def test_report_before_any_run_says_what_to_do(course_root: Path) -> None:
    result = grade("report")

    assert result.exit_code == 2
    assert "no report yet" in only_line(result.stderr)
    assert "`grade stage1`" in result.stderr


def test_report_writes_files_too(course_root: Path, tmp_path: Path) -> None:
    grade("stage1")
    grade(
        "report", "--html", tmp_path / "r.html", "--json", tmp_path / "r.json", "--junit", tmp_path / "r.xml"
    )

    assert from_json((tmp_path / "r.json").read_text(encoding="utf-8")) == last(course_root)
    assert "<!doctype html>" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<testsuites" in (tmp_path / "r.xml").read_text(encoding="utf-8")


def drawn(root: Path) -> None:
    """Results that `grade plot` has drawn, in a course."""
    (root / "results").mkdir(exist_ok=True)
    (root / "results" / "latency.csv").write_text("", encoding="utf-8")
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><title>Drawn before</title></svg>'
    (root / "results" / "latency.svg").write_text(svg, encoding="utf-8")


def test_what_was_drawn_is_on_the_page_on_ones_own_exercises(
    course_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn(course_root)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # importing it fails from now on
    monkeypatch.delitem(sys.modules, "grader.render.plots", raising=False)
    for number, command in enumerate(
        (["stage1"], ["stage1", "--submission", course_root / "exercises"], ["report"])
    ):
        page = tmp_path / f"{number}.html"
        assert grade(*command, "--html", page).exit_code == 0
        assert "Drawn before" in page.read_text(encoding="utf-8")


def test_what_was_drawn_is_not_on_the_page_on_a_submission(course_root: Path, tmp_path: Path) -> None:
    drawn(course_root)
    (tmp_path / "ada").mkdir()
    drawn(tmp_path / "ada")
    page = tmp_path / "r.html"
    assert grade("stage1", "--submission", tmp_path / "ada", "--html", page).exit_code == 0
    assert "Drawn before" not in page.read_text(encoding="utf-8")


def test_what_can_t_go_on_the_page_is_remarked_on(course_root: Path, tmp_path: Path) -> None:
    drawn(course_root)
    (course_root / "results" / "latency.svg").write_text("<svg><script/></svg>", encoding="utf-8")
    result = grade("stage1", "--html", tmp_path / "r.html")
    assert result.exit_code == 0
    assert "latency.svg` is left out of the page: " in result.stderr


def test_a_last_report_that_is_spoilt_is_said_in_one_line(course_root: Path) -> None:
    (course_root / "results").mkdir()
    (course_root / run.LAST).write_text("{")

    result = grade("report")

    assert result.exit_code == 2
    assert "not a readable report" in only_line(result.stderr)


# ---- whose fault


@pytest.mark.parametrize(
    ("error", "status", "whose"),
    [
        (CourseError("no checks"), 2, "the course: no checks"),
        (SubmissionError("too large"), 2, "the submission: too large"),
        (SandboxError("no worker"), 3, "this is the grader's fault, your work is not scored"),
        (ProtocolError("bad bytes"), 3, "this is the grader's fault, your work is not scored"),
        (ValueError("of\nours"), 3, "unexpected ValueError: of ours; this is the grader's fault"),
        (KeyboardInterrupt(), 130, "stopped; nothing is lost"),
    ],
)
def test_an_error_is_one_line_that_says_whose_fault_it_is(
    course_root: Path, error: BaseException, status: int, whose: str
) -> None:
    FakeSession.verdicts["stage1"] = error

    result = grade("stage1")

    assert result.exit_code == status
    assert whose in only_line(result.stderr)
    assert result.stdout == ""
    assert not FakeSession.made[0].is_open


def test_a_very_long_error_keeps_its_beginning_and_end(course_root: Path) -> None:
    FakeSession.verdicts["stage1"] = CourseError("begins\n" + "and goes on\n" * 1000 + "ends")

    line = only_line(grade("stage1").stderr)

    assert line.startswith("grade: the course: begins")
    assert line.endswith("ends")
    assert len(line) < 1000


def test_debug_adds_the_traceback(course_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSession.verdicts["stage1"] = ValueError("ours")

    assert "Traceback" not in grade("stage1").stderr
    assert "Traceback" in grade("--debug", "stage1").stderr
    monkeypatch.setenv("GRADE_DEBUG", "1")
    assert "Traceback" in grade("stage1").stderr


def test_a_submission_that_is_not_there_is_the_submissions_fault(course_root: Path) -> None:
    result = grade("stage1", "--submission", "nowhere")

    assert result.exit_code == 2
    assert only_line(result.stderr) == "grade: the submission: `nowhere` does not exist"


@pytest.mark.parametrize(
    ("arguments", "near"),
    [(["stgae1"], "stage1"), (["lst"], "list"), (["hint", "stag3"], "stage3"), (["watch", "s2"], "")],
)
def test_an_unknown_name_is_one_line_with_a_near_match(
    course_root: Path, arguments: list[str], near: str
) -> None:
    result = grade(*arguments)

    assert result.exit_code == 2
    assert f"`{arguments[-1]}`" in only_line(result.stderr)
    assert (f"did you mean `{near}`?" in result.stderr) == bool(near)


@pytest.mark.parametrize(
    "arguments", [["stage1", "--nonsense"], ["stage1", "--isolation", "little"], ["hint"]]
)
def test_wrong_usage_exits_2(course_root: Path, arguments: list[str]) -> None:
    assert grade(*arguments).exit_code == 2


# ---- which course


@pytest.mark.parametrize("arguments", [["stage1"], ["list"], ["nonsense"], ["doctor"]])
def test_outside_a_course_every_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    result = grade(*arguments)

    assert result.exit_code == 2
    assert "is not inside the course" in only_line(result.stderr)


def test_help_outside_a_course_says_how_to_get_to_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = grade("--help")

    assert result.exit_code == 0
    assert "is not inside the course" in result.stdout
    assert "grade --course PATH" in result.stdout


def test_help_with_a_broken_manifest_says_what_is_broken(course_root: Path) -> None:
    (course_root / "exercises" / "stages.toml").write_text("[course")

    result = grade("--help")

    assert result.exit_code == 0
    assert "stages.toml" in result.stdout


def test_help_lists_stages_with_their_titles(course_root: Path) -> None:
    assert "Stage number 2" in grade("--help").stdout
    assert "What stage 2 is about." in grade("stage2", "--help").stdout


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_course_can_be_named_from_outside(
    course_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if how == "environment":
        monkeypatch.setenv("GRADE_COURSE", str(course_root))

    result = grade(*(["--course", course_root] if how == "option" else []), "list")

    assert result.exit_code == 0
    assert "Stage number 3" in result.stdout


# ---- the other commands


def test_list_names_points_and_files(course_root: Path) -> None:
    lines = grade("list").stdout.splitlines()

    assert lines[0] == "The KV cache, by hand 0.1: 30 points"
    assert "stage1  Stage number 1 (10 points)" in lines
    assert any(line.strip() == str(Path("exercises/stage1_part.py")) for line in lines)


@pytest.mark.parametrize(
    ("level", "text"), [(None, "nudge 2"), ("1", "nudge 2"), ("2", "push 2"), ("3", "answer 2")]
)
def test_hint_goes_from_a_nudge_to_the_answer(course_root: Path, level: str | None, text: str) -> None:
    result = grade("hint", "stage2", *(["--level", level] if level else []))

    assert result.stdout.strip() == text
    assert ("more:" in result.stderr) == (level != "3")


def test_there_is_no_fourth_hint(course_root: Path) -> None:
    assert grade("hint", "stage2", "--level", "4").exit_code == 2


def test_next_stops_at_the_first_stage_not_done(course_root: Path) -> None:
    FakeSession.verdicts["stage2"] = [Verdict.PASS, Verdict.FAIL]

    result = grade("next")

    (session,) = FakeSession.made
    assert [slugs for _, slugs in session.graded] == [["stage1"], ["stage2"]]
    assert session.options.public_only
    assert result.exit_code == 1
    assert "stage1  Stage number 1: done" in result.stdout
    assert "check 0 of stage1" not in result.stdout
    assert "check 1 of stage2" in result.stdout
    assert "`grade hint stage2`" in result.stdout


def test_next_goes_past_what_holds_nobody_back(course_root: Path) -> None:
    FakeSession.verdicts["stage1"] = [Verdict.PASS, Verdict.SKIP, Verdict.PASS, Verdict.INCONCLUSIVE]
    FakeSession.verdicts["stage2"] = [Verdict.BROKEN]

    assert grade("next").exit_code == 3
    assert [slugs for _, slugs in FakeSession.made[0].graded] == [["stage1"], ["stage2"]]


def test_next_with_everything_done_says_so(course_root: Path) -> None:
    result = grade("next")

    assert result.exit_code == 0
    assert "`grade all`" in result.stdout


def saving(*batches: Sequence[str]) -> Callable[..., Any]:
    """A stand-in for watch.saves that reports these saves, then Ctrl-C."""

    def saves(folder: Path, names: object) -> Any:
        yield from map(tuple, batches)
        raise KeyboardInterrupt

    return saves


def test_watch_grades_what_is_saved_in_one_session_and_ends_quietly(
    course_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "grader.watch.saves", saving(["stage2_part.py"], ["stage1_part.py", "stage3_part.py"])
    )

    result = grade("watch")

    (session,) = FakeSession.made
    assert [slugs for _, slugs in session.graded] == [["stage2"], ["stage1", "stage3"]]
    assert result.exit_code == 0
    assert "stopped" not in result.output
    assert not session.is_open


def test_watching_a_stage_grades_it_at_once_and_at_every_save(
    course_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grader.watch.saves", saving(["stage1_part.py"]))

    grade("watch", "stage3")

    assert [slugs for _, slugs in FakeSession.made[0].graded] == [["stage3"], ["stage3"]]
    assert last(course_root).stages[0].slug == "stage3"


def test_watch_goes_on_after_a_submission_that_cannot_be_read(
    course_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeSession.verdicts["stage1"] = SubmissionError("half written")
    monkeypatch.setattr("grader.watch.saves", saving(["stage1_part.py"], ["stage2_part.py"]))

    result = grade("watch")

    assert result.exit_code == 0
    assert "half written" in result.stderr
    assert "check 0 of stage2" in result.stdout


def test_doctor_says_how_every_area_is(course_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [("isolation", "warn", "no Landlock"), ("torch", "ok", "2.13"), ("gpt2.py", "off", "missing")]
    monkeypatch.setattr("grader.doctor.examine", lambda course: found)

    result = grade("doctor")

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "warn  isolation: no Landlock",
        "ok    torch: 2.13",
        "off   gpt2.py: missing",
    ]


@pytest.mark.parametrize(("problems", "status"), [([], 0), (["stage1: no hidden checks"], 1)])
def test_dev_check_names_the_courses_problems(
    course_root: Path, monkeypatch: pytest.MonkeyPatch, problems: list[str], status: int
) -> None:
    module = ModuleType("grader.selfcheck")
    vars(module).update(check=lambda course, progress: problems)
    monkeypatch.setitem(sys.modules, "grader.selfcheck", module)

    result = grade("dev", "check")

    assert result.exit_code == status
    closing = "1 problem" if problems else "the course is in order"
    assert result.stdout.splitlines() == [*problems, closing]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 0, ["wrote exercises/stage1_part.py"]),
        (["--force"], 0, ["wrote exercises/stage1_part.py", "wrote exercises/stage2_part.py"]),
        (["--check"], 1, ["stale exercises/stage3_part.py"]),
    ],
)
def test_dev_stubs_names_what_it_wrote_or_found_stale(
    course_root: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], status: int, said: list[str]
) -> None:
    def write_stubs(root: Path, *, force: bool = False) -> list[Path]:
        return [root / "exercises" / f"stage{n}_part.py" for n in ((1, 2) if force else (1,))]

    monkeypatch.setattr("grader.stubs.write_stubs", write_stubs)
    monkeypatch.setattr("grader.stubs.stale_stubs", lambda root: [root / "exercises" / "stage3_part.py"])

    result = grade("dev", "stubs", *arguments)

    assert result.exit_code == status
    assert [line.replace("\\", "/") for line in result.stdout.splitlines()] == said


# ---- on a terminal


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What `grade` shows on a terminal of its own, stdout and stderr together."""
    command = [str(Path(sys.executable).with_name("grade")), *arguments]
    ours, theirs = os.openpty()
    with open(ours, "rb", buffering=0) as screen:
        with open(theirs, "wb", buffering=0) as terminal:
            settings = {"TERM": "xterm", "COLUMNS": "80", **environment}
            process = subprocess.Popen(command, stdout=terminal, stderr=terminal, env=settings)
        shown = b""
        with suppress(OSError):  # how Linux says that the last writer is gone
            while data := screen.read(4096):
                shown += data
    assert process.wait() == 0
    return shown.decode()


def colours(text: str) -> list[str]:
    """The escape sequences that set a colour; bold and dim are none."""
    return re.findall(r"\x1b\[(?:\d;)*(?:3|4|9|10)\d[;\d]*m", text)


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are Unix's")
@pytest.mark.parametrize("command", ["report", "list"])
def test_a_terminal_gets_style_and_no_color_takes_the_colours_away(course_root: Path, command: str) -> None:
    FakeSession.verdicts["stage1"] = [Verdict.PASS, Verdict.FAIL]
    grade("stage1")

    assert "\x1b[1m" in on_a_terminal(command)
    assert bool(colours(on_a_terminal(command))) == (command == "report")
    assert not colours(on_a_terminal(command, NO_COLOR="1"))


# ---- what is imported


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["stage1", "--help"], ["hint", "stage1"]])
def test_quick_commands_import_nothing_slow(course_root: Path, arguments: list[str]) -> None:
    slow = [
        "torch",
        "numpy",
        "transformers",
        "matplotlib",
        "pytest",
        "rich",
        "jinja2",
        "watchfiles",
        "psutil",
    ]
    script = """
import atexit, json, sys
names = lambda: json.dumps(sorted({name.split(".")[0] for name in sys.modules}))
atexit.register(lambda: print(names(), file=sys.stderr))
from grader.cli import main
main()
"""

    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
    )

    loaded = json.loads(done.stderr.strip().splitlines()[-1])
    assert "click" in loaded
    assert not set(loaded) & set(slow)


def test_the_installed_command_runs(course_root: Path) -> None:
    command = Path(sys.executable).with_name("grade")

    done = subprocess.run([command, "stgae1"], capture_output=True, text=True, check=False, encoding="utf-8")

    assert done.returncode == 2
    assert "did you mean `stage1`?" in only_line(done.stderr)


def test_a_report_of_nothing_is_still_shown(course_root: Path) -> None:
    empty = replace(make_report(SubmissionInfo("ada", "")), stages=())
    (course_root / "results").mkdir()
    (course_root / run.LAST).write_text(to_json(empty), encoding="utf-8")

    assert grade("report").exit_code == 0


def test_a_reader_that_has_seen_enough_gets_no_traceback(course_root: Path) -> None:
    command = f"{Path(sys.executable).parent / 'grade'} stage4 --submission solutions | head -n 1"
    root = Path(__file__).resolve().parents[1]
    result = subprocess.run(["bash", "-c", command], cwd=root, capture_output=True, text=True, check=False)
    assert "INTERNALERROR" not in result.stderr
    assert "fault" not in result.stderr
