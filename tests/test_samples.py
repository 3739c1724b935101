"""Sample submissions: read without mistaking one for another, and graded as each says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from grader import course as courses
from grader import pool, samples, selfcheck, submission
from grader.course import Course
from grader.errors import CourseError
from grader.report import Report
from grader.samples import Sample

COURSE = courses.load(Path(__file__).resolve().parent.parent)
SAMPLES = [*samples.load_all(COURSE, "correct"), *samples.load_all(COURSE, "wrong")]

EVERY = 40  # one of so many is graded here: `grade dev check`, the other half of `make test`, grades all

SOLUTION = '''"""The text."""

def f(x):
    ### BEGIN SOLUTION
    y = x + 1
    return y
    ### END SOLUTION

def g(x):
    ### BEGIN SOLUTION
    return x
    ### END SOLUTION
'''
FILE = "stage4_memory.py"
ABOUT = 'stage = "stage4"\nnote = "what is wrong"\nseen = "students"\n'
EDIT = "[[edit]]\nold = 'y = x + 1'\nnew = 'y = x - 1'\n"


@pytest.fixture
def small(tmp_path: Path) -> Course:
    """A course whose solution of stage 4 is a few lines, and that has no samples yet."""
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / FILE).write_text(SOLUTION, encoding="utf-8")
    return replace(COURSE, root=tmp_path)


def add(
    course: Course,
    manifest: str,
    *,
    kind: str = "wrong",
    name: str = "one",
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> Path:
    """Write a sample's folder; `files` are its stage files' contents by slug."""
    folder = course.root / samples.SAMPLES / kind / name
    folder.mkdir(parents=True)
    (folder / "sample.toml").write_text(manifest, encoding="utf-8")
    for stage, content in files.items():
        (folder / COURSE.stage(stage).file).write_bytes(content)
    return folder


# Reading


def test_edits_make_the_solution_wrong_and_its_markers_go(small: Course) -> None:
    second = "[[edit]]\nold = '''\n    return x\n'''\nnew = '''\n    return 2 * x\n'''\n"

    sample = samples.load(add(small, ABOUT + 'fails = ["stage4.a"]\n' + EDIT + second), small)

    assert sample == Sample(
        name="one",
        kind="wrong",
        stage="stage4",
        note="what is wrong",
        seen="students",
        fails=("stage4.a",),
        files={
            FILE: '"""The text."""\n\ndef f(x):\n    y = x - 1\n    return y\n\ndef g(x):\n    return 2 * x\n'
        },
    )


def test_a_whole_file_is_taken_byte_for_byte(small: Course) -> None:
    content = b"\xef\xbb\xbf# -*- coding: utf-8 -*-\r\nx = 1\r\n"

    sample = samples.load(add(small, ABOUT, kind="correct", files={"stage4": content}), small)

    assert sample.files == {FILE: content}


def test_write_makes_a_submission_of_a_sample(small: Course, tmp_path: Path) -> None:
    sample = samples.load(add(small, ABOUT + EDIT), small)

    folder = samples.write(sample, tmp_path / "handed" / "in")

    assert submission.load(folder, small).files == {FILE: str(sample.files[FILE]).encode()}


@pytest.mark.parametrize(
    ("manifest", "files", "message"),
    [
        ("stage = ", {}, "`sample.toml`: "),
        ("\xff", {}, "`sample.toml`: "),
        (ABOUT.replace("note", "nota"), {}, "unknown field `nota`"),
        (ABOUT.replace("what is wrong", " "), {}, "`note` must be one line"),
        (ABOUT.replace("students", r"a\nb"), {}, "`seen` must be one line"),
        (ABOUT.replace("stage4", "stage99"), {}, "no stage `stage99`"),
        (ABOUT, {}, "needs either a whole `stage4_memory.py` or [[edit]] tables"),
        (ABOUT + EDIT, {"stage4": b""}, "needs either a whole `stage4_memory.py` or [[edit]] tables"),
        (ABOUT, {"stage3": b""}, "is about stage4 but has no `stage4_memory.py`"),
        (ABOUT + EDIT.replace("x + 1", "x + 2"), {}, "edit of `y = x + 2` must fit the solution once, not 0"),
        (ABOUT + EDIT.replace("y = x + 1", "return"), {}, "must fit the solution once, not 2 times"),
        (ABOUT + 'fails = ["stage3.a"]\n' + EDIT, {}, "`stage3.a` in `fails` is not a check of stage4"),
        (ABOUT + "fails = [1]\n" + EDIT, {}, "`sample.toml`: Expected `str`"),
    ],
)  # fmt: skip
def test_a_malformed_sample_is_named_in_one_line(
    small: Course, manifest: str, files: dict[str, bytes], message: str
) -> None:
    folder = add(small, manifest, files=files)

    with pytest.raises(CourseError) as caught:
        samples.load(folder, small)

    assert message in str(caught.value)
    assert str(caught.value).startswith("sample `wrong/one`: ")
    assert "\n" not in str(caught.value)


def test_a_correct_sample_may_not_fail(small: Course) -> None:
    folder = add(small, ABOUT + 'fails = ["stage4.a"]\n', kind="correct", files={"stage4": b""})

    with pytest.raises(CourseError, match="sample `correct/one`: a correct sample fails no check"):
        samples.load(folder, small)


def test_a_stray_file_is_refused(small: Course) -> None:
    folder = add(small, ABOUT, files={"stage4": b""})
    (folder / "notes.txt").touch()

    with pytest.raises(CourseError, match=r"`notes.txt` is neither `sample.toml` nor a stage file"):
        samples.load(folder, small)


def test_a_folder_without_a_manifest_is_refused(small: Course) -> None:
    folder = add(small, ABOUT, files={"stage4": b""})
    (folder / "sample.toml").unlink()

    with pytest.raises(CourseError, match=r"sample `wrong/one`: `.*sample.toml` can't be read"):
        samples.load(folder, small)


def test_an_edit_without_a_solution_is_refused(small: Course) -> None:
    folder = add(small, ABOUT + EDIT)
    (small.solutions / FILE).unlink()

    with pytest.raises(CourseError, match=r"sample `wrong/one`: `.*stage4_memory.py` can't be read"):
        samples.load(folder, small)


def test_all_samples_of_a_kind_come_in_order_of_stage_and_name(small: Course) -> None:
    add(small, ABOUT, name="b", files={"stage4": b""})
    add(small, ABOUT, name="a", files={"stage4": b""})
    add(small, ABOUT.replace("stage4", "stage2"), name="c", files={"stage2": b""})
    add(small, ABOUT, name="d", kind="correct", files={"stage4": b""})

    loaded = samples.load_all(small, "wrong")

    assert [(sample.stage, sample.name) for sample in loaded] == [
        ("stage2", "c"),
        ("stage4", "a"),
        ("stage4", "b"),
    ]


def test_an_unknown_kind_is_refused(small: Course) -> None:
    with pytest.raises(CourseError, match="no samples of kind `odd`"):
        samples.load_all(small, "odd")


# The course's own


@pytest.mark.parametrize("kind", ["correct", "wrong"])
def test_no_two_samples_are_the_same(kind: str) -> None:
    files = [frozenset(sample.files.items()) for sample in SAMPLES if sample.kind == kind]

    assert len(set(files)) == len(files)


@pytest.fixture(scope="module")
def reports(request: pytest.FixtureRequest) -> dict[str, Report]:
    """Grade the samples that this run has chosen, each on its own stage, with a warm grader a core."""
    items = (item for item in request.session.items if isinstance(item, pytest.Function))
    here = [item for item in items if item.module is request.module]  # attacks have a module of their own
    asked = [item.callspec.params.get("sample") for item in here if hasattr(item, "callspec")]
    chosen = [sample for sample in asked if isinstance(sample, Sample)]
    graded = pool.run(COURSE, selfcheck.OPTIONS, selfcheck.grade_sample, chosen)
    return {title(sample): report for sample, report in graded}


def title(sample: Sample) -> str:
    return f"{sample.kind}/{sample.name}"


@pytest.mark.parametrize("sample", SAMPLES[::EVERY], ids=title)
def test_a_sample_is_graded_as_it_says(sample: Sample, reports: dict[str, Report]) -> None:
    report = reports[title(sample)]
    failed = sorted(selfcheck.failed_checks(report))
    (stage,) = report.stages

    assert stage.scored
    assert failed == sorted(sample.fails), f"fails = {failed}"
    assert bool(failed) == (stage.earned < stage.possible) == (sample.kind == "wrong")
