"""Secrets are found wherever they stand in what is handed out, and nothing else is taken for one."""

from __future__ import annotations

import json
import py_compile
import random
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from grader import contents, leaks, release
from grader import course as courses
from grader.course import Course
from grader.errors import CourseError
from grader.leaks import Leak, Secrets

ROOT = Path(__file__).resolve().parent.parent
COURSE = courses.load(ROOT)
SEED, SAMPLE = 7, 40
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


def written(line: str) -> str:
    """The line as it stands in the solution or hidden test that it is from, without what is around it."""
    name, _, number = SECRETS.lines[line].rpartition(":")
    return (ROOT / name).read_text().splitlines()[int(number) - 1].strip()


SECRETS = leaks.secrets(COURSE)
LINES = random.Random(SEED).sample(sorted(SECRETS.lines), SAMPLE)


def notebook(text: str) -> str:
    cell = {"cell_type": "code", "source": text.splitlines(keepends=True), "outputs": [], "metadata": {}}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def zipped(path: Path, text: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("deep/inside.py", text)


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def commented(text: str) -> str:
    return "".join(f"    # {line}\n" for line in text.splitlines())


def archived(path: Path, text: str) -> None:
    (path.parent / "a.py").write_text(text)
    shutil.make_archive(str(path).removesuffix(".tar.gz"), "gztar", path.parent, "a.py")
    (path.parent / "a.py").unlink()


PLACES: dict[str, Callable[[Path, str], object]] = {
    "docs/students.md": lambda path, text: path.write_text(path.read_text() + text),
    "docs/table.md": lambda path, text: path.write_text("".join(f"| `{t}` |\n" for t in text.splitlines())),
    "tests_public/test_stage1_attention.py": lambda path, t: path.write_text(path.read_text() + commented(t)),
    "exercises/gpt2.py": lambda path, text: path.write_text(path.read_text() + commented(text)),
    "grader/known_bugs.py": lambda path, text: path.write_text(path.read_text() + commented(text)),
    "notes.ipynb": lambda path, text: path.write_text(notebook(text)),
    "quoted.py": lambda path, text: path.write_text(f"TEXT = {text!r}\n"),
    "page.html": lambda path, text: path.write_text(f"<pre>{escaped(text)}</pre>"),
    "wide.txt": lambda path, text: path.write_text(text, encoding="utf-16"),
    "dos.txt": lambda path, text: path.write_bytes(text.replace("\n", "\r\n").encode()),
    "weights.bin": lambda path, text: path.write_bytes(b"\0\1" + text.encode() + b"\0\xff"),
    "course.whl": zipped,
    "course.tar.gz": archived,
    "kvgrade.egg-info/SOURCES.txt": lambda path, text: path.write_text(text),
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> list[Leak]:
    """What is found of a release of this course with the sampled lines in every place."""
    folder = tmp_path_factory.mktemp("planted") / "release"
    release.build(COURSE, folder)
    for name, plant in PLACES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        plant(folder / name, "\n" + "".join(f"{written(line)}\n" for line in LINES))
    return leaks.find(contents.of_folder(folder), SECRETS)


@pytest.mark.parametrize("place", PLACES)
def test_any_line_of_a_solution_or_hidden_check_is_found_wherever_it_is_planted(
    planted: list[Leak], place: str
) -> None:
    found = {leak.words for leak in planted if leak.place.partition("!")[0] == place}
    assert [written(line) for line in LINES if line not in found] == []


def test_a_find_names_file_line_and_origin(tmp_path: Path) -> None:
    line = LINES[0]
    (tmp_path / "notes.md").write_text(f"one\ntwo\nas in: {written(line)}\n")
    (found,) = {str(leak) for leak in leaks.find(contents.of_folder(tmp_path), SECRETS) if leak.words == line}
    assert found == f"notes.md:3: is `{SECRETS.lines[line]}`: `{line.strip()}`"


@pytest.mark.parametrize("name", sorted(SECRETS.names)[::20])
def test_a_name_of_hidden_checks_alone_is_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.md").write_text(f"see {name}.\n")
    assert [leak.words.strip() for leak in leaks.find(contents.of_folder(tmp_path), SECRETS)] == [name]


def test_a_name_is_found_in_a_files_name(tmp_path: Path) -> None:
    name = sorted(SECRETS.names)[0]
    (tmp_path / f"{name}.md").write_text("nothing")
    assert [leak.place for leak in leaks.find(contents.of_folder(tmp_path), SECRETS)] == [f"{name}.md"]


def test_seed_and_key_are_found(tiny: Course, tmp_path: Path) -> None:
    (tiny.root / "tests_hidden" / "seed.secret").write_text("5eed\n")
    (tiny.root / "tests_hidden" / "seal.key").write_text("k3y+/=\n")
    (tmp_path / "log.txt").write_text("made with 5eed\nand k3y+/=\n")
    pieces = contents.of_bytes("log.txt", (tmp_path / "log.txt").read_bytes())
    assert {(leak.line, leak.what) for leak in leaks.find(pieces, leaks.secrets(tiny))} == {
        (1, "is `seed.secret`"),
        (2, "is `seal.key`"),
    }


def compiled(tmp_path: Path, source: str) -> Path:
    path = tmp_path / "module.py"
    path.write_text(source)
    return Path(py_compile.compile(str(path), doraise=True) or "")


def test_compiled_python_that_has_its_source_beside_it_is_fine(tmp_path: Path) -> None:
    compiled(tmp_path, "def f(x):\n    return x\n")
    assert leaks.find(contents.of_folder(tmp_path), SECRETS) == []


@pytest.mark.parametrize("replacement", [None, "def f(x):\n    return x\n"], ids=["gone", "another"])
def test_compiled_python_from_a_solution_is_found(tmp_path: Path, replacement: str | None) -> None:
    compiled(tmp_path, (COURSE.solutions / "stage4_memory.py").read_text())
    (tmp_path / "module.py").unlink()
    if replacement:
        (tmp_path / "module.py").write_text(replacement)
    assert [leak.what for leak in leaks.find(contents.of_folder(tmp_path), SECRETS)] == [
        "is compiled, and not from a source beside it: leave it out"
    ]


def test_names_and_texts_in_compiled_python_are_named(tmp_path: Path) -> None:
    name, line = sorted(SECRETS.names)[0], LINES[0]
    path = compiled(tmp_path, f"def {name}():\n    return {written(line)!r}\n")
    found = leaks.find(contents.of_bytes("a.pyc", path.read_bytes()), SECRETS)
    assert {name, line.strip()} <= {leak.words.strip() for leak in found}


def test_what_cannot_be_looked_into_is_not_passed(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 and no more")
    (leak,) = leaks.find(contents.of_folder(tmp_path), SECRETS)
    assert "can't be looked into" in leak.what


def test_history_is_looked_through_with_messages_and_what_no_branch_holds(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run([*GIT, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "a.md").write_text(written(LINES[0]))
    git("add", ".")
    git("commit", "-m", written(LINES[1]))
    git("rm", "a.md")
    git("commit", "-m", "Remove it")
    (tmp_path / "b.md").write_text(written(LINES[2]))
    git("add", ".")
    git("commit", "-m", "b")
    git("reset", "--hard", "HEAD~")  # no branch holds it now
    pieces = (piece for version in contents.history(tmp_path) for piece in version.pieces)
    found = {leak.words: leak.place for leak in leaks.find(pieces, SECRETS)}
    assert set(LINES[:3]) <= set(found)
    assert found[LINES[0]].endswith(", a.md")
    assert found[LINES[1]].startswith("git commit")


def secrets_of(solution: str, given: str, course: Course) -> Secrets:
    """The secrets of a course whose first stage has this line in its solution, and that one in `gpt2.py`."""
    path = course.solutions / course.stages[0].file
    path.write_text(path.read_text().replace("return 2 * number", solution))
    course.given.write_text(given + "\n")
    return leaks.secrets(course)


@pytest.mark.parametrize(
    ("solution", "given", "counts"),
    [
        ("return number + number", "", True),
        ("return number + number  # twice", "", True),
        ("return number + number", "total = number + number", True),
        ("return number + number", "return number   +   number", False),
        ("return", "", False),
    ],
    ids=["a line", "with a comment", "a part is given", "given", "says nothing"],
)
def test_what_counts_as_a_line(tiny: Course, solution: str, given: str, counts: bool) -> None:
    found = secrets_of(solution, given, tiny).lines
    assert (" return number + number " in found) == counts


def test_no_secret_is_a_line_that_students_are_given() -> None:
    stubs = "".join((COURSE.exercises / stage.file).read_text() for stage in COURSE.stages)
    given = " ".join(leaks.WORD.findall(COURSE.given.read_text() + stubs))
    assert [line for line in SECRETS.lines if line.strip() in given] == []


def quoting(course: Course, text: str) -> Course:
    (course.root / "tests").mkdir(exist_ok=True)
    (course.root / leaks.QUOTED).write_text(text)
    return course


ALLOWED = """[[quoted]]
file = "grader/a.py"
lines = ["return  x + y"]
why = "an idiom"
"""
FOUND = Leak("grader/a.py", 3, "is", " return x + y ")


def test_a_quote_is_allowed_in_its_file_alone(tiny: Course) -> None:
    elsewhere = Leak("grader/b.py", 3, "is", " return x + y ")
    another = Leak("grader/a.py", 4, "is", " return x - y ")
    left = leaks.unexcused([FOUND, elsewhere, another], quoting(tiny, ALLOWED))
    assert left == [elsewhere, another]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (ALLOWED, "quotes no secret line `return  x + y`: take it out"),
        (ALLOWED.replace("an idiom", " "), "needs its `why`"),
        (ALLOWED.replace("lines", "liens"), "liens"),
        ("[[quoted", "tests/quoted.toml"),
    ],
    ids=["stale", "no reason", "misspelt", "no TOML"],
)
def test_allowances_are_checked(tiny: Course, text: str, why: str) -> None:
    with pytest.raises(CourseError, match=r".*") as error:
        leaks.unexcused([], quoting(tiny, text))
    assert why in str(error.value)


def test_allowances_of_this_course_are_few() -> None:
    by_file = {quoted.file: len(quoted.lines) for quoted in leaks._quotes(COURSE)}
    assert sum(count for file, count in by_file.items() if file.startswith("grader/")) < 20
