"""Copies are found behind other names, orders and comments; independent right work is left alone."""

from __future__ import annotations

import ast
import csv
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from grader import course as courses
from grader import intake, samples, similarity
from grader.cli import cli
from grader.course import Course
from grader.roster import Roster

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("stage1", "stage2", "stage3", "stage5", "stage6", "stage7", "stage8", "stage9")
BUILT_ON_ANOTHER = re.compile(r"_on_an_unusual_stage_1\Z")  # these quote another sample as their stage 1


@pytest.fixture(scope="module")
def course() -> Course:
    return courses.load(ROOT)


@pytest.fixture
def class_(tmp_path: Path) -> Path:
    folder = tmp_path / "class"
    folder.mkdir()
    return folder


def hand_in(class_: Path, student: str, file: str, content: str | bytes) -> None:
    (class_ / student).mkdir(exist_ok=True)
    (class_ / student / file).write_bytes(content.encode() if isinstance(content, str) else content)


def listed(course: Course, class_: Path) -> list[tuple[str, str, str]]:
    """The couples with the stage, as the table has them, less the formula mark."""
    found = intake.find(class_, course, Roster(), on_duplicate="latest", out=class_.parent / "out")
    table, _ = similarity.write(course, found, class_.parent / "out")
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    return [(row["student"], row["other student"], row["stage"]) for row in rows]


def page(class_: Path) -> str:
    return (class_.parent / "out" / "similarity.html").read_text(encoding="utf-8")


def solution(course: Course, slug: str) -> str:
    return samples.strip((course.solutions / course.stage(slug).file).read_text(encoding="utf-8"))


class Disguise(ast.NodeTransformer):
    """Gives every local name another one and turns the order of functions and classes round."""

    def __init__(self, tree: ast.AST) -> None:
        stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.names = {name: f"other_{n}" for n, name in enumerate(sorted(stored)) if name.islower()}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._turned(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._turned(node)

    def _turned(self, node: ast.Module | ast.ClassDef) -> ast.AST:
        movable = (ast.FunctionDef, ast.ClassDef)
        last_first = iter([part for part in node.body if isinstance(part, movable)][::-1])
        node.body = [next(last_first) if isinstance(part, movable) else part for part in node.body]
        return self.generic_visit(node)


def disguised(code: str) -> str:
    """The code with other names, another order, other line ends, and no comments or layout of its own."""
    tree = ast.parse(code)
    text = ast.unparse(ast.fix_missing_locations(Disguise(tree).visit(tree)))
    return "# all my own work\n" + text.replace("\n", "  # so\r\n", 3)


@pytest.mark.parametrize("slug", STAGES)
def test_a_copy_in_disguise_is_listed(slug: str, course: Course, class_: Path) -> None:
    file = course.stage(slug).file
    hand_in(class_, "ada", file, disguised(solution(course, slug)))
    assert listed(course, class_) == [("ada", similarity.SOLUTIONS, slug)]


def test_disguised_copies_of_every_independent_sample_are_listed(course: Course, class_: Path) -> None:
    own = independent(course)
    for name, files in own.items():
        for file, content in files.items():
            hand_in(class_, name, file, content)
            hand_in(class_, f"{name}_copied", file, disguised(content.decode("utf-8-sig")))
    found = {(one, other) for one, other, _ in listed(course, class_)}
    short = {"nbytes", "recursion"}  # of stage 4; the copies of these look alike by necessity
    assert {(name, f"{name}_copied") for name in own} - found <= {(name, f"{name}_copied") for name in short}


def independent(course: Course) -> dict[str, dict[str, bytes]]:
    """The right samples that were written from scratch, by name."""
    folder = course.root / samples.SAMPLES / "correct"
    found = {path.name: path for path in sorted(folder.iterdir()) if not BUILT_ON_ANOTHER.search(path.name)}
    files = {name: {p.name: p.read_bytes() for p in path.glob("*.py")} for name, path in found.items()}
    return {name: own for name, own in files.items() if own and b"coding" not in b"".join(own.values())}


def test_independent_right_samples_are_not_listed(course: Course, class_: Path) -> None:
    for name, files in independent(course).items():
        for file, content in files.items():
            hand_in(class_, name, file, content)
    assert len(list(class_.iterdir())) > 40
    assert listed(course, class_) == []
    assert "No two are more alike than they must be." in page(class_)


def test_the_stubs_the_given_model_and_short_answers_are_nobodys(course: Course, class_: Path) -> None:
    for student in ("ada", "bob"):
        for stage in course.stages:
            hand_in(class_, student, stage.file, (course.exercises / stage.file).read_bytes())
        hand_in(class_, student, "stage2_generate.py", course.given.read_bytes())
        hand_in(class_, student, "stage4_memory.py", solution(course, "stage4"))
    assert listed(course, class_) == []


def test_what_a_group_handed_in_together_is_no_pair(course: Course, class_: Path) -> None:
    hand_in(class_, "submission_1", "stage1_attention.py", disguised(solution(course, "stage1")))
    people = "".join(f"  - :name: {name}\n    :sid: {name}\n" for name in ("ada", "bob"))
    (class_ / "submission_metadata.yml").write_text(f"submission_1:\n  :submitters:\n{people}")
    couples = {(one, other) for one, other, _ in listed(course, class_)}
    assert couples == {("ada", similarity.SOLUTIONS), ("bob", similarity.SOLUTIONS)}


def test_the_page_says_first_what_it_is_not_and_shows_the_lines_that_both_have(
    course: Course, class_: Path
) -> None:
    text = solution(course, "stage2")
    hand_in(class_, "ada", "stage2_generate.py", text)
    hand_in(class_, "bob", "stage2_generate.py", disguised(text) + "\n" * 9 + "mine = 1\n")
    assert ("ada", "bob", "stage2") in listed(course, class_)
    html = page(class_)
    assert re.search(r"<header>\n<p class=\"warning\">This is a place to look, and not a verdict", html)
    assert re.search(r'<li class="alike"><b>\d+</b> +logits, past = model\(', html)
    assert "mine" not in html
    assert 'class="gap"' in html


def test_names_and_code_are_text_on_the_page(course: Course, class_: Path) -> None:
    evil = "<script>alert(1)</script>"
    text = solution(course, "stage2").replace("torch.no_grad", f'"{evil}\x1b[2J" or torch.no_grad')
    for student in (f"={evil[:8]}x", "bob"):
        hand_in(class_, student, "stage2_generate.py", f"# {evil}\n{text}")
    assert ("'=<script>x", "bob", "stage2") in listed(course, class_)
    html = page(class_)
    assert "<script" not in html
    assert "\x1b" not in html


HOSTILE = {
    "endless_line": b"x = " + b"1 + " * 250_000,
    "deep": b"(" * 1_000_000,
    "binary": bytes(range(256)) * 4000,
    "open_string": b'"""' + b"\\N{" * 10_000,
    "escapes": b'"\\N{' * 5_000,
    "broken": b"def (:\n\tif\n" * 50_000,
    "empty": b"",
    "wide": "é\u202e".encode() * 100_000,
    "many_lines": b"\n" * 1_000_000,
}


def test_hostile_files_cost_little_and_spoil_nothing(course: Course, class_: Path) -> None:
    for name, content in HOSTILE.items():
        hand_in(class_, name, "stage1_attention.py", content[: 1 << 20])
    hand_in(class_, "ten_megabytes", "stage1_attention.py", b"x" * 10_000_000)
    hand_in(class_, "zoe", "stage1_attention.py", disguised(solution(course, "stage1")))
    assert ("zoe", similarity.SOLUTIONS, "stage1") in listed(course, class_)
    assert len(page(class_)) < 1_000_000


def test_a_file_of_much_else_hides_no_copy(course: Course, class_: Path) -> None:
    more = "\n".join(f"def more_{n}(a, b):\n    return a[{n}] * b - {n}" for n in range(60))
    text = solution(course, "stage2")
    hand_in(class_, "ada", "stage2_generate.py", text)
    hand_in(class_, "bob", "stage2_generate.py", f"{more}\n{text}\n{more}")
    assert ("ada", "bob", "stage2") in listed(course, class_)


def test_the_command_alone_grades_nothing(course: Course, class_: Path) -> None:
    text = solution(course, "stage2") + "\nimport os\nos.abort()\n"
    for student in ("ada", "bob"):
        hand_in(class_, student, "stage2_generate.py", text)
    out = class_.parent / "out"
    words = ["--course", str(ROOT), "similarity", str(class_), "--out", str(out)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in out.glob("[!.]*")) == ["similarity.csv", "similarity.html"]
    assert f"wrote {out / 'similarity.html'}" in done.output


def test_no_list_is_written_among_what_was_handed_in_or_somebodys_files(class_: Path) -> None:
    hand_in(class_, "ada", "stage2_generate.py", "x = 1\n")
    for out in (class_, class_ / "ada" / "results"):
        words = ["--course", str(ROOT), "similarity", str(class_), "--out", str(out)]
        done = CliRunner().invoke(cli, words)
        assert (done.exit_code, "name another folder" in done.output) == (2, True), done.output
    assert not list(class_.parent.rglob("similarity.*"))


def test_a_long_comment_hides_no_copy(course: Course, class_: Path) -> None:
    for student in ("ada", "bob"):
        long = "#" + student * similarity.MOST_CHARACTERS + "\n"
        hand_in(class_, student, course.stage("stage2").file, long + solution(course, "stage2"))
    assert ("ada", "bob", "stage2") in listed(course, class_)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("x = 1\n" * similarity.MOST_CHARACTERS, "characters that were not compared"),
        ("exec('x = 1')\n", "makes code of what is not compared: exec"),
    ],
)
def test_what_was_not_compared_is_named(course: Course, class_: Path, code: str, why: str) -> None:
    hand_in(class_, "ada", course.stage("stage2").file, code)
    listed(course, class_)
    assert f"ada: {course.stage('stage2').file}" in page(class_)
    assert why in page(class_)
