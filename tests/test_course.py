"""The manifest: what is right is loaded, what is wrong is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader import course
from grader.errors import CourseError

ABOUT = '[course]\ntitle = "T"\nversion = "1"\n'
HINTS = '["a", "b", "c"]'
FIELDS = {
    "slug": '"stage1"',
    "title": '"First"',
    "file": '"stage1_first.py"',
    "points": "10",
    "hidden_points": "4",
    "summary": '"s"',
    "hints": HINTS,
}


def manifest(*stages: dict[str, str], about: str = ABOUT) -> str:
    tables = ["[[stage]]\n" + "\n".join(f"{k} = {v}" for k, v in stage.items()) for stage in stages]
    return about + "\n".join(tables)


def write_course(root: Path, text: str | None = None) -> Path:
    (root / "exercises").mkdir(parents=True)
    (root / "exercises" / "stages.toml").write_text(
        manifest(FIELDS) if text is None else text, encoding="utf-8"
    )
    return root


def test_a_right_manifest_gives_stages_with_default_limits() -> None:
    (stage,) = course.parse(manifest(FIELDS), Path("/c")).stages

    assert (stage.slug, stage.name, stage.points, stage.public_points) == (
        "stage1",
        "stage1_first",
        10.0,
        6.0,
    )
    assert stage.limits == course.Limits()


def test_limits_are_read_from_a_stages_own_table() -> None:
    (stage,) = course.parse(manifest(FIELDS) + "\n[stage.limits]\ncheck_s = 2.5\n", Path("/c")).stages

    assert stage.limits == course.Limits(check_s=2.5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"slug": '"Stage1"'}, "slug must be lower-case"),
        ({"slug": '"stage1/.."'}, "slug must be lower-case"),
        ({"file": '"../stage1_x.py"'}, "must be a plain lower-case `.py` name"),
        ({"file": '"stage1_x.txt"'}, "must be a plain lower-case `.py` name"),
        ({"file": '"stage10_x.py"'}, "must begin with `stage1_`"),
        ({"points": "0"}, "points must be positive"),
        ({"points": "nan"}, "points must be positive"),
        ({"points": '"ten"'}, "Expected `float`"),
        ({"hidden_points": "-1"}, "hidden_points"),
        ({"hidden_points": "10"}, "hidden_points"),
        ({"hints": '["a"]'}, "needs 3 hints, has 1"),
        ({"hint": '"a"'}, "unknown field `hint`"),
        ({"limits": "{check_s = 0}"}, "limits in seconds must be positive"),
        ({"limits": "{memory_mib = -1}"}, "memory_mib and output_kib must be positive"),
        ({"limits": "{seconds = 1}"}, "unknown field `seconds`"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, str], said: str) -> None:
    with pytest.raises(CourseError) as caught:
        course.parse(manifest(FIELDS | changes), Path("/c"))

    message = str(caught.value)
    assert said in message
    assert "stages.toml" in message
    assert "\n" not in message


@pytest.mark.parametrize("field", ["slug", "title", "file", "points", "hidden_points", "summary", "hints"])
def test_a_missing_field_is_named(field: str) -> None:
    stage = {k: v for k, v in FIELDS.items() if k != field}

    with pytest.raises(CourseError, match=f"missing required field `{field}`"):
        course.parse(manifest(stage), Path("/c"))


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"file": '"stage1_second.py"'}, "slug `stage1` is used by more than one stage"),
        ({"slug": '"stage2"'}, "file `stage1_first.py` is used by more than one stage"),
    ],
)
def test_a_doubled_field_is_named(second: dict[str, str], said: str) -> None:
    with pytest.raises(CourseError, match=said):
        course.parse(manifest(FIELDS, FIELDS | second), Path("/c"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "missing required field"),
        ("a = = 1", "line 1"),
        (ABOUT, "stage"),
        ("stage = []\n" + ABOUT, "no stages"),
    ],
)
def test_a_manifest_without_stages_is_refused(text: str, said: str) -> None:
    with pytest.raises(CourseError, match=said):
        course.parse(text, Path("/c"))


def test_the_course_is_found_from_a_folder_deep_inside(tmp_path: Path) -> None:
    root = write_course(tmp_path / "course")
    deep = root / "exercises" / "a" / "b"
    deep.mkdir(parents=True)

    assert course.find(deep).root == root.resolve()


def test_outside_a_course_the_error_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match=r"is not inside the course: no `exercises.stages\.toml`"):
        course.find(tmp_path)


def test_a_manifest_that_is_not_text_is_the_courses_fault(tmp_path: Path) -> None:
    root = write_course(tmp_path)
    (root / "exercises" / "stages.toml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(CourseError, match="can't be read"):
        course.load(root)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    root = write_course(tmp_path)
    text = manifest(FIELDS).replace("\n", "\r\n").encode()
    (root / "exercises" / "stages.toml").write_bytes(b"\xef\xbb\xbf" + text)

    assert [stage.slug for stage in course.load(root).stages] == ["stage1"]


def test_an_unknown_stage_error_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="no stage `stage9`: the course has stage1"):
        course.load(write_course(tmp_path)).stage("stage9")


def test_hidden_tests_are_left_out_where_missing_or_unwanted(tmp_path: Path) -> None:
    loaded = course.load(write_course(tmp_path))
    (stage,) = loaded.stages
    public, hidden = loaded.public_tests(stage), loaded.hidden_tests(stage)
    assert loaded.tests(stage) == (public,)

    hidden.parent.mkdir()
    hidden.touch()

    assert loaded.tests(stage) == (public, hidden)
    assert loaded.tests(stage, public_only=True) == (public,)


@pytest.mark.parametrize("path", ["exercises/gpt2.py", "tests_public/test_a.py", "tests_hidden/test_a.py"])
def test_the_digest_changes_with_anything_a_verdict_depends_on(tmp_path: Path, path: str) -> None:
    before = course.load(write_course(tmp_path)).digest
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text("x = 1\n")

    assert course.load(tmp_path).digest != before


def test_the_digest_does_not_change_with_a_students_file(tmp_path: Path) -> None:
    before = course.load(write_course(tmp_path)).digest
    (tmp_path / "exercises" / "stage1_first.py").write_text("x = 1\n")

    assert course.load(tmp_path).digest == before
