"""Explain it back: every stage has its questions, wrong files are named, answers come when asked for."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from grader import course as courses
from grader import explain
from grader.cli import HINT_WIDTH, cli
from grader.course import Course
from grader.errors import CourseError
from grader.explain import Question

COURSE = courses.find(Path(__file__))
PATIENCE = 300  # times 0.2 s
TWO_STAGES = replace(COURSE, stages=COURSE.stages[:2])


def table(slug: str, count: int, question: str = "Why?", answer: str = "Because.") -> str:
    return f'[[{slug}]]\nquestion = "{question}"\nanswer = "{answer}"\n' * count


def grade(*words: str) -> str:
    result = CliRunner().invoke(cli, ["--course", str(COURSE.root), "explain", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_course_asks_about_every_stage() -> None:
    assert list(explain.load(COURSE)) == [stage.slug for stage in COURSE.stages]


def test_no_question_is_asked_twice() -> None:
    asked = [each.question for questions in explain.load(COURSE).values() for each in questions]
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize(
    ("fact", "slug"),
    [
        ("73,728 bytes", "stage4"),
        ("74,539,008 bytes", "stage4"),
        ("P + n - 1 = 1,011", "stage2"),
        ("near-tie", "stage8"),
        ("twice as large", "stage7"),
    ],
)
def test_an_answer_states_the_lessons_fact(fact: str, slug: str) -> None:
    assert any(fact in each.answer for each in explain.load(COURSE)[slug])


def test_questions_are_parsed_by_stage() -> None:
    questions = explain.parse(table("stage1", 3) + table("stage2", 4), TWO_STAGES)
    assert questions == {
        "stage1": (Question("Why?", "Because."),) * 3,
        "stage2": (Question("Why?", "Because."),) * 4,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (table("stage1", 3), "stage `stage2` needs 3 or 4 questions, has 0"),
        (table("stage1", 2) + table("stage2", 3), "stage `stage1` needs 3 or 4 questions, has 2"),
        (table("stage1", 5) + table("stage2", 3), "stage `stage1` needs 3 or 4 questions, has 5"),
        (table("stage1", 3) + table("stage2", 3) + table("stage3", 3), "`stage3` is not a stage"),
        (table("stage1", 3) + table("stage2", 3, answer=" "), "stage `stage2`: a question and its answer"),
        ('[[stage1]]\nquestion = "Why?"\n', "missing required field `answer`"),
        ('[[stage1]]\nquestion = "?"\nanswer = "!"\nhint = ""\n', "unknown field `hint`"),
        ("stage1 = 5", "Expected `array`"),
        ("stage1 = [", "explain.toml`: "),
    ],
)
def test_wrong_questions_are_one_line_that_names_the_fault(text: str, said: str) -> None:
    with pytest.raises(CourseError) as caught:
        explain.parse(text, TWO_STAGES)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_course_without_questions_says_so(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="can't be read"):
        explain.load(Course(tmp_path, "t", "1", COURSE.stages))


def test_nothing_slow_is_imported() -> None:
    code = "import sys, grader.explain; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_a_terminal_there_are_questions_only() -> None:
    shown = grade("stage1")
    for number, each in enumerate(explain.load(COURSE)["stage1"], 1):
        assert explain.asked(each, number, HINT_WIDTH) in shown
        assert explain.answered(each, HINT_WIDTH) not in shown


def test_answers_follow_their_questions() -> None:
    shown = grade("stage4", "--answers")
    places = []
    for number, each in enumerate(explain.load(COURSE)["stage4"], 1):
        places += [
            shown.index(explain.asked(each, number, HINT_WIDTH)),
            shown.index(explain.answered(each, HINT_WIDTH)),
        ]
    assert places == sorted(places)


def test_lines_fit_the_width() -> None:
    assert all(
        len(line) <= HINT_WIDTH
        for stage in COURSE.stages
        for line in grade(stage.slug, "--answers").splitlines()
    )


def test_an_unknown_stage_is_a_mistake() -> None:
    result = CliRunner().invoke(cli, ["--course", str(COURSE.root), "explain", "stage0"])
    assert result.exit_code == 2


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_on_a_terminal_a_key_shows_the_answer() -> None:
    first = explain.load(COURSE)["stage1"][0]
    ours, theirs = os.openpty()
    code = "from grader.cli import main; main()"
    words = [sys.executable, "-c", code, "--course", str(COURSE.root), "explain", "stage1"]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        try:
            before = _read_until(ours, "any key", press=b"")
            after = _read_until(ours, first.answer[:30], press=b" ")
        finally:
            process.kill()
            os.close(ours)
    assert first.question[:30] in before
    assert first.answer[:30] not in before
    assert first.question[:30] not in after


def _read_until(terminal: int, mark: str, press: bytes) -> str:
    """Read until `mark` has come, pressing a key now and then: one pressed too early is dropped."""
    seen = ""
    for _ in range(PATIENCE):
        if mark in seen:
            break
        os.write(terminal, press)
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 4096).decode("utf-8", "replace")
    return seen
