"""Where to look for work that is not one's own: students whose files are alike, as a page and a table.

Files are read as text and never run. What is done with them is bounded: so many bytes of a file, so many
words, so many characters of a line that is shown. Nothing of this reaches a report or a grade.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from grader import destination, intake, likeness, report, results
from grader import roster as rosters
from grader.course import Course
from grader.errors import SubmissionError
from grader.intake import Entry, Intake
from grader.likeness import Pair, Word
from grader.results import SIMILARITY
from grader.roster import Roster

Work = tuple[str, str, dict[str, bytes]]  # a student's label, where their files lie, the files by name

SOLUTIONS = "(the course's solutions)"
MOST_CHARACTERS = 1 << 15  # of a file without its comments; the longest solution has 13 KB
MOST_WORDS = 6000
LONGEST_LINE = 200
COMMENT = re.compile(r"^[ \t]*#.*", re.MULTILINE)  # on a line of its own
HIDING = re.compile(r"(?<![\w.])(exec|eval|compile)\s*\(")  # makes code of what can't be compared
TASTE = "(),"  # whether these stand there is often only that


def run(course: Course, path: Path, out: Path, roster: Path | None, **chosen: Any) -> tuple[Path, ...]:
    """Find what a class handed in, as `intake.find` is told to choose, and `write`.

    Raises SubmissionError or CourseError where there is nothing to compare, Mistake where `out` is no place
    for results.
    """
    destination.vet(course, path, out)
    known = rosters.load(roster) if roster else Roster()
    found = intake.find(path, course, known, out=out, **chosen)
    with destination.held(out):
        return write(course, found, out)


def write(course: Course, found: Intake, out: Path) -> tuple[Path, ...]:
    """Compare what a class handed in, stage by stage, and write the table and the page; name them."""
    from grader.render import similarity

    works = [_work(course, entry) for entry in found.entries]
    couples = likeness.by_students(list(_pairs(course, works)))
    about = f"{course.title} {course.version}"
    page = similarity.render(couples, list(_unseen(works)), course=about, works=len(works))
    table, shown = (out / name for name in SIMILARITY)
    report.write(table, likeness.to_csv(couples))
    report.write(shown, page)
    return table, shown


def _pairs(course: Course, handed_in: Sequence[Work]) -> Iterator[Pair]:
    """The pairs of every stage; the course's own solutions are one work among the others."""
    ours = [course.solutions / stage.file for stage in course.stages]
    solutions = {path.name: path.read_bytes() for path in ours if path.is_file()}
    works = [*handed_in, (SOLUTIONS, "", solutions)]
    stubs = [course.exercises / stage.file for stage in course.stages]
    handed_out = [path.read_bytes() for path in (course.given, *stubs) if path.is_file()]
    given = {passage for content in handed_out for passage in likeness.passages(words(decoded(content)))}
    for stage in course.stages:
        texts = [
            _text(name, source, files[stage.file], given)
            for name, source, files in works
            if stage.file in files
        ]
        yield from likeness.alike(stage.slug, texts)


def _unseen(works: Sequence[Work]) -> Iterator[str]:
    """Files of which more is there than was compared."""
    for student, _, files in works:
        for file, content in sorted(files.items()):
            code = decoded(content)
            more = len(code) - MOST_CHARACTERS
            if more > 0:
                yield f"{student}: {file} goes on for {more} characters that were not compared"
            elif hiding := sorted(set(HIDING.findall(code))):
                yield f"{student}: {file} makes code of what is not compared: {', '.join(hiding)}"


def _work(course: Course, entry: Entry) -> Work:
    """A student's label, where their files lie (a group's are the same), and the files by name."""
    label, source = results.label(entry.key), repr([str(piece.path) for piece in entry.pieces])
    try:
        return label, source, intake.load(entry, course, label).files
    except SubmissionError:
        return label, source, {}


def _text(student: str, source: str, content: bytes, given: Collection[int]) -> likeness.Text:
    code = decoded(content)
    lines = [line[:LONGEST_LINE] for line in code[:MOST_CHARACTERS].split("\n")]
    return likeness.text(student, source, lines, words(code), given)


def decoded(content: bytes) -> str:
    """A file as text without comments that have their lines to themselves; what is not UTF-8 is marked."""
    text = content.decode("utf-8-sig", "replace")
    return COMMENT.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def words(code: str) -> list[Word]:
    """The words of Python code, right or wrong, each with its line: no comments, one word for all names.

    The names of built-in things, and `self`, stay what they are, since nobody renames those.
    """
    from pygments.lexers.python import PythonLexer
    from pygments.token import Comment, Literal, Name, Text

    def word(kind: Any, text: str) -> str:
        if kind in Text or kind in Comment or kind in Literal.String.Doc or text in TASTE:
            return ""
        if kind in Literal.String:
            return "string"
        return "name" if kind in Name and kind not in Name.Builtin and kind not in Name.Exception else text

    found: list[Word] = []
    line = 0
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(code[:MOST_CHARACTERS]):
        said = word(kind, text)
        is_more = said == "string" and found and found[-1][0] == said
        if said and not is_more and len(found) < MOST_WORDS:
            found.append((said, line))
        line += text.count("\n")
    return found
