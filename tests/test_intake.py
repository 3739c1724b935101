"""What a class handed in is found, whatever platform it came from; its names are nothing but names."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from grader import course as courses
from grader import intake, platforms
from grader.errors import SubmissionError
from grader.faults import Mistake
from grader.intake import Intake
from grader.roster import Roster, Student

MANIFEST = """
[course]
title = "Tiny"
version = "1"
"""
STAGE = """
[[stage]]
slug = "stage{n}"
title = "Stage {n}"
file = "stage{n}_part.py"
points = 10
hidden_points = 4
summary = "s"
hints = ["a", "b", "c"]
"""
ONE, TWO = "stage1_part.py", "stage2_part.py"
NOBODY = Roster()


@pytest.fixture
def course(tmp_path: Path) -> courses.Course:
    return courses.parse(MANIFEST + STAGE.format(n=1) + STAGE.format(n=2), tmp_path / "course")


@pytest.fixture
def class_(tmp_path: Path) -> Path:
    folder = tmp_path / "class"
    folder.mkdir()
    return folder


def put(root: Path, *names: str, text: str = "x = 1\n", when_s: float | None = None) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if when_s is not None:
            os.utime(path, (when_s, when_s))


def zipped(*names: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in names:
            archive.writestr(name, "x = 1\n")
    return data.getvalue()


def find(
    class_: Path,
    course: courses.Course,
    roster: Roster = NOBODY,
    policy: str = "latest",
    out: str = "out",
    assignment: str | None = None,
) -> Intake:
    return intake.find(class_, course, roster, on_duplicate=policy, out=class_ / out, assignment=assignment)


def files(found: Intake, course: courses.Course) -> dict[str, list[str] | str]:
    """What each student handed in, or why it can't be read."""
    read: dict[str, list[str] | str] = {}
    for entry in found.entries:
        try:
            read[entry.key] = sorted(intake.load(entry, course, entry.key).files)
        except SubmissionError as error:
            read[entry.key] = str(error)
    return read


def test_folders_archives_and_single_files_are_a_student_each(class_: Path, course: courses.Course) -> None:
    put(class_, f"ada/{ONE}", f"ada/{TWO}", f"bob_{ONE}", f"eve/work/{TWO}", f"fay/exercises/{ONE}")
    (class_ / "cyd.zip").write_bytes(zipped(f"work/{TWO}", "__MACOSX/work/._x"))
    with tarfile.open(class_ / "dan.tar.gz", "w:gz") as archive:
        archive.add(class_ / "ada" / ONE, ONE)
    (class_ / "gil.ZIP").write_bytes(zipped(ONE))
    both = [ONE, TWO]
    ones = {"bob": [ONE], "dan": [ONE], "fay": [ONE], "gil": [ONE]}
    assert files(find(class_, course), course) == {"ada": both, "cyd": [TWO], "eve": [TWO], **ones}


def test_names_with_spaces_apostrophes_and_other_letters_are_kept(
    class_: Path, course: courses.Course
) -> None:
    names = [
        "O'Brien ünï (1) ",
        "李小龍",
        "x" * 200,
        "a'b; rm -rf $(HOME)",
        "\N{PILE OF POO}",
        "-rf",
        "team_1_2_x",
    ]
    for name in names:
        put(class_, f"{name}/{ONE}")
    assert files(find(class_, course), course) == {name: [ONE] for name in names}


def test_what_programs_leave_behind_is_no_student(class_: Path, course: courses.Course) -> None:
    put(class_, f"ada/{ONE}", f"bob/{ONE}", f"__MACOSX/{ONE}", f"__pycache__/{ONE}", f".venv/{ONE}")
    put(class_, "._ada", ".DS_Store", f".hidden/{ONE}", f"venv/{ONE}", f"out/{ONE}")
    put(class_, "grades.csv", "README.md")
    found = find(class_, course)
    assert [entry.key for entry in found.entries] == ["ada", "bob"]
    assert found.aside == (".hidden", "README.md", "grades.csv")


def test_exactly_one_wrapping_folder_is_unwrapped(class_: Path, course: courses.Course) -> None:
    put(class_, f"wrap/ada/{ONE}", f"wrap/bob/{ONE}", "__MACOSX/x")
    assert [entry.key for entry in find(class_, course).entries] == ["ada", "bob"]


@pytest.mark.parametrize("inside", [(ONE, TWO), (f"exercises/{ONE}", "docs/x.txt")], ids=["files", "course"])
def test_a_class_of_one_is_not_unwrapped(
    inside: tuple[str, ...], class_: Path, course: courses.Course
) -> None:
    put(class_, *(f"ada/{name}" for name in inside))
    assert [entry.key for entry in find(class_, course).entries] == ["ada"]


def test_a_canvas_download_is_one_submission_a_student(class_: Path, course: courses.Course) -> None:
    put(class_, f"doejane_12345_678_{ONE}", "doejane_LATE_12345_679_stage2_part-3.py", f"doejane_9_1_{TWO}")
    (class_ / "roeric_77_5_my work.zip").write_bytes(zipped(ONE, TWO))
    put(class_, "poejo_78_6_essay.pdf")
    found = find(class_, course)
    read = files(found, course)
    assert "holds" in str(read["poejo_78"]) or "no folder" in str(read.pop("poejo_78"))
    read.pop("poejo_78", None)
    assert read == {"doejane_12345": [ONE, TWO], "doejane_9": [TWO], "roeric_77": [ONE, TWO]}
    assert {entry.key for entry in found.entries if entry.late} == {"doejane_12345"}


def test_of_two_canvas_uploads_the_later_is_graded(class_: Path, course: courses.Course) -> None:
    put(class_, f"doejane_1_7_{ONE}", text="old")
    put(class_, "doejane_1_7_stage1_part-10.py", text="newest", when_s=5)
    put(class_, "doejane_1_7_stage1_part-9.py", text="newer")
    found = find(class_, course)
    (entry,) = found.entries
    assert intake.load(entry, course, "x").files == {ONE: b"newest"}
    assert len(found.duplicates) == 2
    assert all("part-10.py" in line for line in found.duplicates)


def test_a_moodle_download_is_read_with_and_without_folders(class_: Path, course: courses.Course) -> None:
    put(class_, f"Jane Doe_1234_assignsubmission_file_/{ONE}", f"Max Roe_99_assignsubmission_file_{TWO}")
    (class_ / "Eve Poe_5_assignsubmission_file_").mkdir()
    (class_ / "Eve Poe_5_assignsubmission_file_" / "my work.zip").write_bytes(zipped(ONE))
    put(class_, "Eve Poe_5_assignsubmission_file_/notes.txt")
    read = files(find(class_, course), course)
    assert read == {"Eve Poe_5": [ONE], "Jane Doe_1234": [ONE], "Max Roe_99": [TWO]}


def test_nbgraders_tree_is_a_student_and_an_assignment(class_: Path, course: courses.Course) -> None:
    put(class_, f"submitted/ada/ps1/{ONE}", "submitted/ada/ps1/timestamp.txt", f"submitted/bob/ps1/{TWO}")
    assert files(find(class_, course), course) == {"ada": [ONE], "bob": [TWO]}
    assert files(find(class_ / "submitted", course), course) == {"ada": [ONE], "bob": [TWO]}


def test_of_several_assignments_one_is_named(class_: Path, course: courses.Course) -> None:
    put(class_, f"submitted/ada/kv/{ONE}", f"submitted/ada/ps1/{TWO}", f"submitted/bob/ps1/{TWO}")
    with pytest.raises(Mistake, match="has several assignments: `kv`, `ps1`"):
        find(class_, course)
    with pytest.raises(Mistake, match="has no assignment `ps2`, it has `kv`, `ps1`"):
        find(class_, course, assignment="ps2")
    assert files(find(class_, course, assignment="kv"), course) == {"ada": [ONE]}
    assert files(find(class_, course, assignment="ps1"), course) == {"ada": [TWO], "bob": [TWO]}


def test_an_assignment_is_no_matter_of_other_layouts(class_: Path, course: courses.Course) -> None:
    put(class_, f"ada/{ONE}", f"bob/{ONE}")
    with pytest.raises(Mistake, match="is for nbgrader's"):
        find(class_, course, assignment="kv")


def test_a_gradescope_export_names_everybody_of_a_group(class_: Path, course: courses.Course) -> None:
    put(class_, f"export/submission_11/{ONE}", f"export/submission_12/{TWO}")
    text = """---
submission_11:
  :submitters:
  - :name: Ada Lovelace
    :sid: '17'
    :email: ada@example.org
  - :name: Bob
    :sid:
    :email: bob@example.org
  :created_at: 2026-11-01 10:00:00.0 Z
submission_12:
  :submitters:
  - :name: "Eve"
    :sid: "19"
"""
    put(class_, "export/submission_metadata.yml", text=text)
    assert files(find(class_, course), course) == {"17": [ONE], "19": [TWO], "bob@example.org": [ONE]}


def test_a_symbolic_link_is_never_followed(class_: Path, course: courses.Course, tmp_path: Path) -> None:
    put(tmp_path, f"elsewhere/{ONE}")
    put(class_, f"ada/{ONE}", "inner/x.txt")
    (class_ / "bob").symlink_to(tmp_path / "elsewhere")
    (class_ / f"cyd_{ONE}").symlink_to(tmp_path / "elsewhere" / ONE)
    (class_ / "eve.zip").symlink_to("eve.zip")
    (class_ / "inner" / "work").symlink_to(tmp_path / "elsewhere")
    (class_ / "inner" / ONE).symlink_to(tmp_path / "elsewhere" / ONE)
    read = files(find(class_, course), course)
    assert read.pop("ada") == [ONE]
    assert "link" in str(read.pop("inner"))
    assert set(read) == {"bob", "cyd", "eve"}
    assert all(text == "it is a symbolic link, which is not followed" for text in read.values())


def test_a_pipe_does_not_stop_the_class(class_: Path, course: courses.Course) -> None:
    put(class_, f"ada/{ONE}")
    os.mkfifo(class_ / f"bob_{ONE}")
    assert files(find(class_, course), course)["bob"] == "it is neither a folder nor a plain file"


def test_what_cannot_be_read_is_an_entry_with_the_reason(class_: Path, course: courses.Course) -> None:
    put(class_, f"ada/{ONE}", "bob.zip", "cyd/notes.txt", "dan.py", "eve.rar")
    read = files(find(class_, course), course)
    assert read.pop("ada") == [ONE]
    assert "not a readable archive" in str(read["bob"])
    assert "no stage file" in str(read["cyd"])
    assert "not named as a stage file" in str(read["dan"])
    assert "no folder" in str(read["eve"])
    assert not any(str(class_) in text for text in read.values())


@pytest.mark.parametrize(("policy", "graded"), [("latest", TWO), ("first", ONE)])
def test_of_two_submissions_the_policy_chooses_and_names_the_other(
    policy: str, graded: str, class_: Path, course: courses.Course
) -> None:
    put(class_, f"ada/{ONE}", when_s=1000)
    (class_ / "ada.zip").write_bytes(zipped(TWO))
    os.utime(class_ / "ada.zip", (2000, 2000))
    put(class_, f"bob/{ONE}")
    found = find(class_, course, policy=policy)
    assert files(found, course) == {"ada": [graded], "bob": [ONE]}
    dropped = "class/ada" if policy == "latest" else "class/ada.zip"
    assert [line.partition(" is not graded")[0] for line in found.duplicates] == [f"ada: `{dropped}`"]


def test_duplicates_can_be_an_error(class_: Path, course: courses.Course) -> None:
    put(class_, f"ada/{ONE}", "ada.zip")
    with pytest.raises(SubmissionError, match=r"more than once: ada: .*ada\.zip"):
        find(class_, course, policy="error")


def test_the_roster_names_who_is_missing_and_who_is_a_stranger(class_: Path, course: courses.Course) -> None:
    put(class_, f"Ada Lovelace_5_assignsubmission_file_/{ONE}", f"mallory/{ONE}")
    ada, bob = Student("s17", "Ada Lovelace"), Student("s18", "Bob")
    found = find(class_, course, Roster((bob, ada)))
    assert {(entry.key, entry.student, entry.is_stranger) for entry in found.entries} == {
        ("s17", ada, False),
        ("mallory", None, True),
    }
    assert found.missing == (bob,)


def test_two_names_of_one_student_on_the_roster_are_duplicates(class_: Path, course: courses.Course) -> None:
    put(class_, f"s17/{ONE}", when_s=1000)
    put(class_, f"ada@example.org/{TWO}", when_s=2000)
    found = find(class_, course, Roster((Student("s17", "Ada", "ada@example.org"),)))
    assert files(found, course) == {"s17": [TWO]}
    assert len(found.duplicates) == 1


@pytest.mark.parametrize(
    ("policy", "single_s", "kept"),
    [("latest", 2000, "single"), ("latest", 500, "whole"), ("first", 500, "single")],
)
def test_of_a_file_and_a_whole_submission_the_policy_chooses_file_by_file(
    policy: str, single_s: float, kept: str, class_: Path, course: courses.Course
) -> None:
    put(class_, f"ada/{ONE}", f"ada/{TWO}", text="whole", when_s=1000)
    put(class_, f"ada_{ONE}", text="single", when_s=single_s)
    put(class_, f"bob/{ONE}")
    entry, _ = find(class_, course, policy=policy).entries
    work = intake.load(entry, course, "ada")
    assert work.files == {ONE: kept.encode(), TWO: b"whole"}
    assert f"`{ONE}` was handed in twice" in work.info.notes


@pytest.mark.parametrize("names", [(), ("notes.md",)], ids=["empty", "aside"])
def test_a_folder_without_submissions_says_so(
    names: tuple[str, ...], class_: Path, course: courses.Course
) -> None:
    put(class_, *names)
    with pytest.raises(SubmissionError, match="holds no submissions"):
        find(class_, course)


def test_one_submission_in_place_of_a_class_is_told_where_to_go(class_: Path, course: courses.Course) -> None:
    put(class_, ONE, TWO)
    with pytest.raises(SubmissionError, match="grade all --submission"):
        find(class_, course)


def test_an_archive_in_place_of_a_folder_is_refused(class_: Path, course: courses.Course) -> None:
    (class_ / "all.zip").write_bytes(zipped(f"ada/{ONE}"))
    with pytest.raises(SubmissionError, match="unpack the download"):
        find(class_ / "all.zip", course)


@pytest.mark.parametrize(
    "name",
    [
        f"doejane_12345_678_roeric_99_1_{ONE}",
        f"doejane_12345_678_Eve_5_assignsubmission_file_{ONE}",
        "doejane_12345_678_" + "9" * 500,
    ],
    ids=["canvas", "moodle", "digits"],
)
def test_a_students_file_name_does_not_make_it_another_students(name: str) -> None:
    assert platforms.parse(name, [ONE]).student in ("doejane_12345", name)
    assert "doejane" in platforms.parse(name, [ONE]).student


def test_control_characters_and_bad_bytes_are_fit_to_show() -> None:
    name = os.fsdecode(b"a\x1b[2J\n\xff\xe2\x80\xae")
    assert intake.fit(name).isprintable()
    intake.fit(name).encode()
