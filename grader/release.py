"""The student's repository: made of the course, looked through for secrets, tried out, put in place."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment

from grader import contents, given, leaks, scaffold, seal, stubs, submission, update
from grader import report as reports
from grader.contents import Piece
from grader.course import Course
from grader.faults import Mistake
from grader.given import Given
from grader.leaks import Leak
from grader.outcome import Verdict
from grader.report import EXIT_FAILED, EXIT_PASSED

HERE = Path(__file__).parent
HANDOUT = HERE / "handout"
DOCS = ("students.md", "course.md", "report.md", "performance.md")
PROJECT = ("pyproject.toml", "LICENSE")  # the course's own, else those of the grader
TEMPLATES = {
    "Makefile": "Makefile",
    "gitignore": ".gitignore",
    "gitattributes": ".gitattributes",
    "grade.yml": ".github/workflows/grade.yml",
    "gitlab-ci.yml": ".gitlab-ci.yml",
}
TESTPATHS = re.compile(r'^testpaths = \["tests"\]$', re.MULTILINE)
MOST_SHOWN = 50
SETTINGS = ("GRADE_", "PYTHON", "GIT_")  # of the instructor's environment; the student's has none

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command's options say."""

    out: Path
    seal: bool = False
    smoke: bool = True


def release(course: Course, wanted: Wanted, say: Say) -> int:
    """Make the student's repository at `out`, or renew what it was given; give the exit status.

    What holds a secret, or does not grade as it should, is not put in place. Raises Mistake where `out` is
    no place for it, CourseError where the course can't be handed out.
    """
    out = wanted.out.resolve()
    _vet(course, out)
    for stage in course.stages:
        if scaffold.is_untouched(course, stage):
            raise Mistake(f"{stage.slug} is still as `grade dev new` made it: write it, or take it out")
    try:
        return _released(course, wanted, out, say)
    except OSError as error:
        raise Mistake(f"`{out}` can't be written: {error}") from error


def _released(course: Course, wanted: Wanted, out: Path, say: Say) -> int:
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
        staged = Path(temporary) / "release"
        count = build(course, staged, with_seal=wanted.seal)
        say(f"{course.title} {course.version}: {count} files for {len(course.stages)} stages")
        found = [*looked_through(course, staged), *_already_there(course, out, say)]
        for leak in found[:MOST_SHOWN]:
            say(str(leak))
        if found:
            say(f"not released: {len(found)} of these; what is rightly given goes into `{leaks.QUOTED}`")
            return EXIT_FAILED
        say("looked through: no line of a solution or a hidden check, no name, no secret")
        wrong = smoke(course, staged, say) if wanted.smoke else []
        for line in wrong:
            say(line)
        if wrong:
            say("not released: a student's copy would not grade as it should")
            return EXIT_FAILED
        return _put(staged, out, say)


def _vet(course: Course, out: Path) -> None:
    if out == course.root or out in course.root.parents:
        raise Mistake(f"`{out}` holds the course itself: name another folder")
    if out.exists() and not out.is_dir():
        raise Mistake(f"`{out}` is not a folder")
    is_ours = (out / given.MANIFEST).is_file() or (out / ".git").exists()
    if out.is_dir() and any(out.iterdir()) and not is_ours:
        raise Mistake(f"`{out}` holds files that no release and no git repository owns: name another folder")


def build(course: Course, folder: Path, *, with_seal: bool = False) -> int:
    """Write all that a student is given, and what it was, into a new folder; give the number of files."""
    files = dict(_files(course))
    stages = tuple(f"exercises/{stage.file}" for stage in course.stages)
    for name, content in files.items():
        reports.write(folder / name, content)
    if with_seal:
        seal.seal(course, folder / seal.FILE, course.root / "tests_hidden" / seal.KEY_FILE)
        files[seal.FILE] = (folder / seal.FILE).read_bytes()
    for name in stages:
        reports.write(given.stub_of(folder, name), files[name])
    digests = {name: given.digest(content) for name, content in files.items()}
    given.write(folder, Given(course=course.title, version=course.version, files=digests, stages=stages))
    return len(files)


def _files(course: Course) -> Iterator[tuple[str, bytes]]:
    """What is given, by its path in the student's repository.

    The whole grader is: nothing of it is secret (students may read how they are graded), and `grade ci` with
    sealed checks needs it. What needs solutions or hidden checks says so when it is run.
    """
    root = course.root
    stage_files = {stage.file for stage in course.stages}
    for stage in course.stages:
        yield f"exercises/{stage.file}", stubs.of_stage(course, stage).encode()
    for path in _plain(course.exercises):
        if path.name not in stage_files:
            yield path.relative_to(root).as_posix(), path.read_bytes()
    for path in (*sorted((root / "tests_public").glob("*.py")), *sorted(course.profiles.glob("*.toml"))):
        yield path.relative_to(root).as_posix(), path.read_bytes()
    for path in _plain(HERE):
        yield path.relative_to(HERE.parent).as_posix(), path.read_bytes()
    docs = [f"docs/{name}" for name in DOCS if (root / "docs" / name).is_file()]
    for name in docs:
        yield name, (root / name).read_bytes()
    for name in PROJECT:
        yield name, TESTPATHS.sub('testpaths = ["tests_public"]', _own(course, name)).encode()
    for name, place in TEMPLATES.items():
        yield place, (HANDOUT / name).read_bytes()
    page = Environment(keep_trailing_newline=True, autoescape=False)  # Markdown, of the course's own words
    text = page.from_string((HANDOUT / "README.md.j2").read_text(encoding="utf-8"))
    yield "README.md", text.render(course=course, docs=docs).encode()


def _plain(top: Path) -> Iterator[Path]:
    return (path for path in submission.plain_files(top) if path.suffix != ".pyc")


def _own(course: Course, name: str) -> str:
    for folder in (course.root, HERE.parent):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise Mistake(f"there is no `{name}` in `{course.root}`: release from a clone of the course")


def looked_through(course: Course, folder: Path) -> list[Leak]:
    """Name every secret in a release."""
    found = leaks.find(contents.of_folder(folder), leaks.secrets(course))
    return leaks.unexcused(found, course)


def _already_there(course: Course, out: Path, say: Say) -> list[Leak]:
    """Name every secret in a folder that is to be renewed, its git history included.

    Where somebody has begun to work, files and history are theirs, and right answers look like secrets; then
    only a solution itself is found. What an earlier release gave was looked through then.
    """
    if not out.is_dir():
        return []
    before = given.load(out) or Given()
    if solved := [leak for stage in course.stages if (leak := _solution_at(course, stage.file, out))]:
        return solved
    begun = [name for name in before.stages if _is_theirs(out / name, before.files[name])]
    if begun:
        say(f"`{begun[0]}` is somebody's work: what is there besides the release is not looked through")
        return []
    return leaks.find(_others(out, before), leaks.secrets(course))


def _solution_at(course: Course, name: str, out: Path) -> Leak | None:
    path, solution = out / "exercises" / name, course.solutions / name
    if not path.is_file() or not solution.is_file():
        return None
    text, ours = path.read_bytes(), solution.read_bytes()
    is_ours = text == ours or stubs.BEGIN.encode() in text
    return Leak(f"exercises/{name}", 1, f"is `solutions/{name}`") if is_ours else None


def _is_theirs(path: Path, digest: str) -> bool:
    return path.is_file() and given.digest(path.read_bytes()) != digest


def _others(out: Path, before: Given) -> Iterator[Piece]:
    """What a folder holds, now and ever, that no release gave."""
    yield from contents.of_folder(out, lambda name: _is_theirs(out / name, before.files.get(name, "")))
    versions = list(contents.history(out)) if (out / ".git").exists() else []
    manifest = given.MANIFEST.as_posix()
    earlier = [given.parse(v.content) for v in versions if v.name == manifest]
    known = {digest for each in (before, *earlier) for digest in each.files.values()}
    for version in versions:
        if given.digest(version.content) not in known:
            yield from version.pieces


def smoke(course: Course, folder: Path, say: Say) -> list[str]:
    """Grade a copy of a release with nothing else: its stubs, then the solutions; say what is wrong."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(shutil.copytree(folder, Path(temporary) / "copy"))
        untouched = _graded(copy)
        for stage in course.stages:
            shutil.copyfile(course.solutions / stage.file, copy / "exercises" / stage.file)
        solved = _graded(copy)
    wrong = [f"untouched stubs earn {untouched['earned']:g} points"] if untouched["earned"] else []
    fine = (
        Verdict.PASS,
        Verdict.INCONCLUSIVE,
    )  # a machine too busy to judge a timing says nothing of the copy
    checks = [check for stage in solved["stages"] for check in stage["checks"]]
    wrong += [f"the solution: `{c['id']}`: {c['verdict']}" for c in checks if c["verdict"] not in fine]
    say(f"tried out: stubs {untouched['earned']:g}, solutions {solved['earned']:g} public points")
    return wrong


def _graded(copy: Path) -> Any:
    """Grade a copy by the grader that lies in it; give the report.

    Raises Mistake where it can't.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    report = copy.with_name("report.json")
    command = [sys.executable, "-c", "from grader.cli import main; main()", "all", "--quiet"]
    done = subprocess.run([*command, "--json", report], cwd=copy, env=environment, capture_output=True)
    if done.returncode not in (EXIT_PASSED, EXIT_FAILED):
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise Mistake(f"`grade all` in the student's copy: exit status {done.returncode}: {said}")
    return json.loads(report.read_bytes())


def _put(staged: Path, out: Path, say: Say) -> int:
    """Put a release in place: at once where nothing is there, else over it."""
    if not out.is_dir() or not any(out.iterdir()):
        os.replace(staged, out)
        say(f"wrote {out}")
        return EXIT_PASSED
    said, is_whole = update.apply(update.fetch(staged), out)
    for line in said:
        say(line)
    say(f"renewed {out}")
    return EXIT_PASSED if is_whole else EXIT_FAILED
