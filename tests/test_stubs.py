"""Stubs are the solutions without what is to be written, and nobody's work is overwritten."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from grader.errors import CourseError
from grader.stubs import BEGIN, END, stale_stubs, stub_text, write_stubs

COURSE = Path(__file__).resolve().parent.parent

SOLUTION = f'''"""Stage 3."""

import math
{BEGIN}
import itertools
{END}


class Attention:
    """Given."""

    size = 5

    def forward(self, x):
        """Do it."""
        y = x + 1
        {BEGIN}
        y = math.sqrt(y)

        def inner():
            return y

        return inner()
        {END}


def loop(n):
    for _ in range(n):
        {BEGIN}
        pass
        {END}
    return n
'''

STUB = '''"""Stage 3."""

import math


class Attention:
    """Given."""

    size = 5

    def forward(self, x):
        """Do it."""
        y = x + 1
        raise NotImplementedError("stage3: Attention.forward")


def loop(n):
    for _ in range(n):
        raise NotImplementedError("stage3: loop")
    return n
'''


@pytest.fixture
def course(tmp_path: Path) -> Path:
    (tmp_path / "solutions").mkdir()
    (tmp_path / "exercises").mkdir()
    (tmp_path / "solutions" / "stage3_timing.py").write_text(SOLUTION)
    (tmp_path / "solutions" / "notes.py").write_text("not a stage\n")
    return tmp_path


def test_regions_become_one_line_that_names_stage_and_function() -> None:
    assert stub_text(SOLUTION, "stage3") == STUB


def test_line_ends_stay_as_they_are() -> None:
    assert stub_text(SOLUTION.replace("\n", "\r\n"), "stage3") == STUB.replace("\n", "\r\n")


def test_line_separator_in_a_string_does_not_shift_the_lines() -> None:
    source = f'A = "\u2028"\n\n\ndef f():\n    {BEGIN}\n    return 2\n    {END}\n'
    assert 'NotImplementedError("stage2: f")' in stub_text(source, "stage2")


def test_method_of_a_nested_class_is_named_in_full() -> None:
    lines = ("class A:", " class B:", "  async def f(self):", f"   {BEGIN}", "   pass", f"   {END}", "")
    source = "\n".join(lines)
    assert '"stage5: A.B.f"' in stub_text(source, "stage5")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (f"    {BEGIN}\n    {BEGIN}\n    pass\n    {END}\n", r"line `3`: .* inside the region of line `2`"),
        (f"    {BEGIN}\n    pass\n", r"line `2`: .* is never closed"),
        (f"    pass\n    {END}\n", r"line `3`: .* without a"),
        (f"    pass  {BEGIN}\n    pass\n    {END}\n", r"line `2`: a marker must stand alone"),
        (
            f"    x = 2\n    {BEGIN}\n    # nothing\n\n    {END}\n",
            r"line `6`: the region begun on line `3` holds no code",
        ),
        ("    pass\n", r"nothing is marked"),
        (f"    {BEGIN}\n    pass\n    {END}\n  what\n", r"solution of `stage2`, line `5`: not Python"),
        (f"    {BEGIN}\n    x = [\n    {END}\n    ]\n", r"stub of `stage2`, line `3`: not Python"),
    ],
    ids=["nested", "unclosed", "stray", "not alone", "empty", "none", "broken solution", "broken stub"],
)
def test_wrong_markers_are_refused_with_their_line(body: str, complaint: str) -> None:
    with pytest.raises(CourseError, match=complaint) as caught:
        stub_text("def f():\n" + body, "stage2")
    assert "\n" not in str(caught.value)


def test_write_stubs_makes_what_is_missing_and_then_rests(course: Path) -> None:
    stub = course / "exercises" / "stage3_timing.py"
    assert stale_stubs(course) == [stub]
    assert write_stubs(course) == [stub]
    assert stub.read_text() == STUB
    assert stale_stubs(course) == []
    assert write_stubs(course) == []


def test_write_stubs_does_not_overwrite_somebodys_work(course: Path) -> None:
    (work := course / "exercises" / "stage3_timing.py").write_text("my work\n")
    with pytest.raises(CourseError, match="may hold somebody's work"):
        write_stubs(course)
    assert work.read_text() == "my work\n"


def test_write_stubs_writes_nothing_when_one_file_holds_work(course: Path) -> None:
    (course / "exercises" / "stage3_timing.py").write_text("my work\n")
    (course / "solutions" / "stage2_generate.py").write_text(SOLUTION)
    with pytest.raises(CourseError):
        write_stubs(course)
    assert not (course / "exercises" / "stage2_generate.py").exists()


def test_write_stubs_overwrites_when_forced(course: Path) -> None:
    (work := course / "exercises" / "stage3_timing.py").write_text("my work\n")
    assert write_stubs(course, force=True) == [work]
    assert work.read_text() == STUB


def test_one_byte_makes_a_stub_stale(course: Path) -> None:
    write_stubs(course)
    stub = course / "exercises" / "stage3_timing.py"
    stub.write_bytes(stub.read_bytes() + b"\n")
    assert stale_stubs(course) == [stub]


def test_stubs_of_the_course_are_fresh() -> None:
    assert stale_stubs(COURSE) == []


def test_stubs_of_the_course_hold_no_solution() -> None:
    for path in sorted((COURSE / "exercises").glob("stage*.py")):
        raised = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Raise)]
        assert raised, path
        assert "SOLUTION" not in path.read_text()
