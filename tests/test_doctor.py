"""The doctor: what is missing is named, and what follows from it."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from grader import doctor
from grader.course import Course, Stage
from grader.errors import SandboxError


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    """A course of one stage, every file in place, where a worker is confined by two layers."""
    stage = Stage("stage1", "First", "stage1_first.py", 10.0, 4.0, "s", ("a", "b", "c"))
    course = Course(tmp_path, "T", "1", (stage,))
    for path in (course.given, course.exercises / stage.file, course.public_tests(stage)):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    monkeypatch.setattr("grader.session.missing_layers", lambda: "")
    monkeypatch.setattr(doctor, "_layers_of_a_worker", lambda: {"landlock": "on: files", "seccomp": "on"})
    return course


def states(found: list[doctor.Finding], area: str) -> list[str]:
    return [state for name, state, _ in found if name == area]


def text_of(found: list[doctor.Finding], area: str) -> str:
    return "; ".join(text for name, _, text in found if name == area)


def test_a_whole_course_has_nothing_off(course: Course) -> None:
    found = doctor.examine(course)

    assert [finding for finding in found if finding[1] == "off"] == []
    assert states(found, "isolation") == ["ok"]
    assert {area for area, _, _ in found} >= {
        "python",
        "packages",
        "course",
        "machine",
        "load",
        "memory",
        "device",
    }


@pytest.mark.parametrize("what", ["given", "public_tests"])
def test_a_missing_file_of_the_course_is_off(course: Course, what: str) -> None:
    path = course.given if what == "given" else course.public_tests(course.stages[0])
    path.unlink()

    found = doctor.examine(course)

    assert "off" in states(found, "course")
    assert str(path) in text_of(found, "course")


def test_a_missing_stage_file_is_a_warning(course: Course) -> None:
    (course.exercises / "stage1_first.py").unlink()

    assert states(doctor.examine(course), "exercises") == ["warn"]


def test_a_missing_package_is_off_and_an_extra_a_warning(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name in ("rich", "nbgrader"):
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)

    found = doctor.examine(course)

    assert states(found, "packages") == ["ok", "off"]
    assert "missing: rich" in text_of(found, "packages")
    assert states(found, "nbgrader") == ["warn"]


def test_a_layer_that_is_off_is_said_out_loud(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor, "_layers_of_a_worker", lambda: {"namespaces": "off: not permitted", "seccomp": "on"}
    )

    found = doctor.examine(course)

    assert states(found, "isolation") == ["warn"]
    assert states(found, "isolation: namespaces") == ["warn"]
    assert states(found, "isolation: seccomp") == ["ok"]


def test_where_confinement_cannot_be_had_the_reason_is_given(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grader.session.missing_layers", lambda: "it needs Linux")

    assert "it needs Linux" in text_of(doctor.examine(course), "isolation")


def test_a_worker_that_does_not_start_is_off(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> dict[str, str]:
        raise SandboxError("the worker did not start")

    monkeypatch.setattr(doctor, "_layers_of_a_worker", fail)

    assert states(doctor.examine(course), "isolation") == ["off"]


def test_a_busy_machine_is_a_warning(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.getloadavg", lambda: (99.0, 0.0, 0.0))

    assert states(doctor.examine(course), "load") == ["warn"]
