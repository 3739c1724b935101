"""Explain it back: questions on what a stage should have taught, with model answers."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from grader.course import Course
from grader.errors import CourseError

QUESTIONS = Path("exercises") / "explain.toml"
FEWEST, MOST = 3, 4


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One question and its model answer."""

    question: str
    answer: str


def load(course: Course) -> dict[str, tuple[Question, ...]]:
    """Read the questions of every stage, by slug.

    Raises CourseError where there are none, or they are wrong.
    """
    path = course.root / QUESTIONS
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CourseError(f"`{path}` can't be read: {error}") from error
    return parse(text, course)


def parse(text: str, course: Course) -> dict[str, tuple[Question, ...]]:
    """Check the text of the questions against the course's stages.

    Raises CourseError for a stage without three or four of them, an unknown stage, an empty text.
    """
    try:
        questions = msgspec.convert(tomllib.loads(text), dict[str, tuple[Question, ...]])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise CourseError(f"`{QUESTIONS}`: {error}") from error
    for wrong in _faults(questions, [stage.slug for stage in course.stages]):
        raise CourseError(f"`{QUESTIONS}`: {wrong}")
    return questions


def _faults(questions: Mapping[str, tuple[Question, ...]], slugs: list[str]) -> list[str]:
    """Say what well-typed questions still have wrong."""
    unknown = [f"`{slug}` is not a stage of the course" for slug in questions if slug not in slugs]
    counts = {slug: len(questions.get(slug, ())) for slug in slugs}
    few_or_many = [
        f"stage `{slug}` needs {FEWEST} or {MOST} questions, has {count}"
        for slug, count in counts.items()
        if not FEWEST <= count <= MOST
    ]
    empty = [
        f"stage `{slug}`: a question and its answer must say something"
        for slug, all_of_it in questions.items()
        for each in all_of_it
        if not each.question.strip() or not each.answer.strip()
    ]
    return unknown + few_or_many + empty


def asked(question: Question, number: int, width: int) -> str:
    """Render a question under its number."""
    return _indented(f"{number}. {question.question.strip()}", width)


def answered(question: Question, width: int) -> str:
    """Render its answer."""
    return _indented(question.answer.strip(), width, first="   ")


def _indented(text: str, width: int, first: str = "") -> str:
    return click.wrap_text(text, width, initial_indent=first, subsequent_indent="   ")
