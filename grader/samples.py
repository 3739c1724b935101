"""Sample submissions: right, wrong and hostile ones that show what the course's checks can tell apart."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from grader.course import Course, Stage
from grader.errors import CourseError
from grader.outcome import Verdict

SAMPLES = Path("tests") / "submissions"
MANIFEST = "sample.toml"
MARKER = re.compile(r"[ \t]*### (?:BEGIN|END) SOLUTION[ \t]*\n")


class Hostile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of an attack: the verdict of each check by its name in the stage, `*` for all not named.

    Checks that no key names pass. Without namespaces it may end otherwise. `at_process` says whether the
    `process` level withstands it too: `stopped`, `open`, or `unsafe` to try.
    """

    verdicts: dict[str, Verdict] = {}
    verdicts_without_namespaces: dict[str, Verdict] | None = None
    at_process: Literal["stopped", "open", "unsafe"] = "stopped"


@dataclass(frozen=True, slots=True)
class Sample:
    """One submission of one stage: what is unusual about it, and the ids of the checks that it must fail.

    Those that it `may_fail` are by the clock, and it is near their limit. `diagnoses` are the known bugs
    that a report on it must name, and no other.
    """

    name: str
    kind: str
    stage: str
    note: str
    seen: str
    fails: tuple[str, ...]
    files: dict[str, str | bytes]
    hostile: Hostile | None = None
    may_fail: tuple[str, ...] = ()
    diagnoses: tuple[str, ...] = ()

    @property
    def handed_in(self) -> dict[str, bytes]:
        """The files as a student would hand them in."""
        return {name: t.encode() if isinstance(t, str) else t for name, t in self.files.items()}


class _Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One replacement in a solution, or in the `base`; in the stage's own file if `file` is not named.

    `old` is there once.
    """

    old: str
    new: str
    file: str = ""


class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stage: str
    note: str
    seen: str
    fails: tuple[str, ...] = ()
    may_fail: tuple[str, ...] = ()
    diagnoses: tuple[str, ...] = ()
    base: str = ""  # a correct sample that is edited in the solution's place
    edit: tuple[_Edit, ...] = ()
    hostile: Hostile | None = None


def load(folder: Path, course: Course) -> Sample:
    """Read the sample in `folder` (`…/KIND/NAME`): its own stage files, or the solution with its edits.

    Raises CourseError where the sample is malformed, or its edits no longer fit the solution.
    """
    kind, name = folder.parent.name, folder.name
    where = f"sample `{kind}/{name}`"
    manifest = _parse(_read(folder / MANIFEST, where), where)
    stage = _stage(manifest, course, where)
    files = _own_files(folder, course, where)
    if bool(files) == bool(manifest.edit):
        raise CourseError(f"{where}: needs either a whole `{stage.file}` or [[edit]] tables, and not both")
    if files and stage.file not in files:
        raise CourseError(f"{where}: is about {stage.slug} but has no `{stage.file}`")
    if manifest.edit:
        edited = dict.fromkeys((stage.file, *(edit.file or stage.file for edit in manifest.edit)))
        sources = folder.parents[1] / "correct" / manifest.base if manifest.base else course.solutions
        texts = {name: strip(_read(sources / name, where)) for name in edited}
        for edit in manifest.edit:
            texts[edit.file or stage.file] = _apply(texts[edit.file or stage.file], edit, where)
        files = dict(texts)
    if kind == "correct" and manifest.fails:
        raise CourseError(f"{where}: a correct sample fails no check; move it or empty `fails`")
    if (kind == "hostile") != (manifest.hostile is not None):
        raise CourseError(f"{where}: a hostile sample, and no other, has a [hostile] table")
    for check in (*manifest.fails, *manifest.may_fail):
        if not check.startswith(f"{stage.slug}."):
            raise CourseError(f"{where}: `{check}` in `fails` is not a check of {stage.slug}")
    told = (manifest.note, manifest.seen, manifest.fails)
    more = (manifest.hostile, manifest.may_fail, manifest.diagnoses)
    return Sample(name, kind, stage.slug, *told, files, *more)


def load_all(course: Course, kind: str) -> list[Sample]:
    """Load every sample of a kind (`correct`, `wrong`, `hostile`) in order of stage, then name.

    Raises CourseError for the first that is malformed.
    """
    folder = course.root / SAMPLES / kind
    if not folder.is_dir():
        raise CourseError(f"no samples of kind `{kind}`: `{folder}` is not a folder")
    order = {stage.slug: place for place, stage in enumerate(course.stages)}
    samples = [load(path, course) for path in folder.iterdir() if path.is_dir()]
    return sorted(samples, key=lambda sample: (order[sample.stage], sample.name))


def write(sample: Sample, folder: Path) -> Path:
    """Write the sample's files into `folder`, as a student would hand them in; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in sample.handed_in.items():
        (folder / name).write_bytes(content)
    return folder


def strip(solution: str) -> str:
    """Drop the `### BEGIN/END SOLUTION` marker lines."""
    return MARKER.sub("", solution)


def _read(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CourseError(f"{where}: `{path}` can't be read: {error}") from error


def _parse(text: str, where: str) -> _Manifest:
    try:
        manifest = msgspec.convert(tomllib.loads(text), _Manifest)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise CourseError(f"{where}: `{MANIFEST}`: {error}") from error
    for field in ("note", "seen"):
        value: str = getattr(manifest, field)
        if not value.strip() or "\n" in value:
            raise CourseError(f"{where}: `{field}` must be one line that says something")
    return manifest


def _stage(manifest: _Manifest, course: Course, where: str) -> Stage:
    try:
        return course.stage(manifest.stage)
    except CourseError as error:
        raise CourseError(f"{where}: {error}") from error


def _own_files(folder: Path, course: Course, where: str) -> dict[str, str | bytes]:
    """Read the stage files beside the manifest byte for byte: line ends and encoding may be the point."""
    files: dict[str, str | bytes] = {}
    for path in sorted(folder.iterdir()):
        if path.name == MANIFEST:
            continue
        if not path.is_file() or path.name not in {stage.file for stage in course.stages}:
            raise CourseError(f"{where}: `{path.name}` is neither `{MANIFEST}` nor a stage file")
        files[path.name] = path.read_bytes()
    return files


def _apply(text: str, edit: _Edit, where: str) -> str:
    if text.count(edit.old) != 1:
        first = next((line.strip() for line in edit.old.splitlines() if line.strip()), "")
        raise CourseError(
            f"{where}: the edit of `{first}` must fit the solution once, not {text.count(edit.old)} times"
        )
    return text.replace(edit.old, edit.new)
