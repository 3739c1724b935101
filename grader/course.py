"""The course: what `exercises/stages.toml` says, checked, and every path that follows from it."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from grader.errors import CourseError

MANIFEST = Path("exercises") / "stages.toml"
HINTS_PER_STAGE = 3
SLUG = re.compile(r"[a-z][a-z0-9]*\Z")
STAGE_FILE = re.compile(r"[a-z][a-z0-9_]*\.py\Z")


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one check may use: wall-clock seconds, MiB above the bare worker, KiB of output kept."""

    check_s: float = 10.0
    import_s: float = 30.0
    memory_mib: int = 1024
    output_kib: int = 64


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One exercise; `hidden_points` of its `points` are decided by hidden checks.

    `uses` names earlier stages whose files, the student's own, this stage's file may import; `runs` names
    those whose files some of its checks run, and which the stage's own file does without.
    """

    slug: str
    title: str
    file: str
    points: float
    hidden_points: float
    summary: str
    hints: tuple[str, ...]
    uses: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    limits: Limits = Limits()

    @property
    def name(self) -> str:
        """The stage file's stem, which is also the module's name: `stage1_attention`."""
        return self.file.removesuffix(".py")

    @property
    def public_points(self) -> float:
        return self.points - self.hidden_points


class _About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    version: str


class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    course: _About
    stage: tuple[Stage, ...]


@dataclass(frozen=True)
class Course:
    """A course on disk: its manifest and the folders around it.

    `sealed` holds the files of `tests_hidden/`, as `tests_hidden/NAME`, where they are not on disk but were
    unsealed into memory.
    """

    root: Path
    title: str
    version: str
    stages: tuple[Stage, ...]
    sealed: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def exercises(self) -> Path:
        return self.root / "exercises"

    @property
    def solutions(self) -> Path:
        return self.root / "solutions"

    @property
    def profiles(self) -> Path:
        return self.root / "hardware_profiles"

    @property
    def given(self) -> Path:
        """The model that every stage file may import, always ours and never the submission's."""
        return self.exercises / "gpt2.py"

    @property
    def seed_secret(self) -> Path:
        return self.root / "tests_hidden" / "seed.secret"

    def stage(self, slug: str) -> Stage:
        """Find a stage by slug.

        Raises CourseError naming the known slugs.
        """
        for stage in self.stages:
            if stage.slug == slug:
                return stage
        raise CourseError(f"no stage `{slug}`: the course has {', '.join(s.slug for s in self.stages)}")

    def public_tests(self, stage: Stage) -> Path:
        return self.root / "tests_public" / f"test_{stage.name}.py"

    def hidden_tests(self, stage: Stage) -> Path:
        return self.root / "tests_hidden" / f"test_{stage.name}.py"

    def unsealed(self, path: Path) -> bytes | None:
        """What was sealed of this path; None for what is on disk, if anywhere."""
        return self.sealed.get(f"{path.parent.name}/{path.name}") if self.sealed else None

    def has(self, path: Path) -> bool:
        """Whether there is such a file of checks, on disk or unsealed."""
        return self.unsealed(path) is not None or path.is_file()

    def tests(self, stage: Stage, *, public_only: bool = False) -> tuple[Path, ...]:
        """The test files of a stage that are present: public first, then hidden unless `public_only`."""
        hidden = self.hidden_tests(stage)
        with_hidden = not public_only and self.has(hidden)
        return (self.public_tests(stage), hidden) if with_hidden else (self.public_tests(stage),)

    def read(self, path: Path) -> bytes:
        """What such a file holds, unsealed or on disk. Raises OSError where it can't be read."""
        content = self.unsealed(path)
        return path.read_bytes() if content is None else content

    @cached_property
    def timed(self) -> tuple[Stage, ...]:
        """The stages with checks marked `@check(clock=True)`, which a neighbour would disturb."""
        import ast

        def is_timed(path: Path) -> bool:
            return any(
                isinstance(node, ast.keyword) and node.arg == "clock" and ast.unparse(node.value) == "True"
                for node in ast.walk(ast.parse(self.read(path)))
            )

        return tuple(s for s in self.stages if any(is_timed(p) for p in self.tests(s) if self.has(p)))

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all that a verdict depends on: manifest, given model, tests, profiles, the grader."""
        files = [self.root / MANIFEST, self.given, *sorted(self.profiles.glob("*.toml"))]
        for folder in (self.root / "tests_public", self.root / "tests_hidden", Path(__file__).parent):
            unsealed = (self.root / name for name in self.sealed if folder == self.root / Path(name).parent)
            files += sorted({*folder.rglob("*.py"), *(path for path in unsealed if path.suffix == ".py")})
        files += sorted((self.exercises / "small").glob("*"))
        sha = hashlib.sha256()
        for path in files:
            if self.has(path):
                sha.update(path.name.encode() + b"\0" + hashlib.sha256(self.read(path)).digest())
        return sha.hexdigest()


def parse(text: str, root: Path) -> Course:
    """Check a manifest's text and make a Course of it.

    Raises CourseError for anything missing, unknown, doubled or out of range.
    """
    try:
        manifest = msgspec.convert(tomllib.loads(text), _Manifest)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise CourseError(f"`{MANIFEST}`: {error}") from error
    if not manifest.stage:
        raise CourseError(f"`{MANIFEST}`: no stages; add a [[stage]] table")
    for key in ("slug", "file"):
        values = [getattr(stage, key) for stage in manifest.stage]
        for value in values:
            if values.count(value) > 1:
                raise CourseError(f"`{MANIFEST}`: {key} `{value}` is used by more than one stage")
    for place, stage in enumerate(manifest.stage):
        earlier = [other.slug for other in manifest.stage[:place]]
        for wrong in _faults(stage, earlier):
            raise CourseError(f"`{MANIFEST}`: stage `{stage.slug}`: {wrong}")
    return Course(root, manifest.course.title, manifest.course.version, manifest.stage)


def _faults(stage: Stage, earlier: Sequence[str]) -> list[str]:
    """Say what a well-typed stage table still has wrong."""
    limits = stage.limits
    tests: list[tuple[Any, str]] = [
        (SLUG.match(stage.slug), "slug must be lower-case letters and digits"),
        (STAGE_FILE.match(stage.file), f"file `{stage.file}` must be a plain lower-case `.py` name"),
        (stage.file.startswith(stage.slug + "_"), f"file `{stage.file}` must begin with `{stage.slug}_`"),
        (stage.points > 0, "points must be positive"),
        (0 <= stage.hidden_points < stage.points, "hidden_points must be at least 0 and less than points"),
        (len(stage.hints) == HINTS_PER_STAGE, f"needs {HINTS_PER_STAGE} hints, has {len(stage.hints)}"),
        (limits.check_s > 0 and limits.import_s > 0, "limits in seconds must be positive"),
        (limits.memory_mib > 0 and limits.output_kib > 0, "memory_mib and output_kib must be positive"),
        *((slug in earlier, f"uses `{slug}`, which is not an earlier stage") for slug in stage.uses),
        *((slug in earlier, f"runs `{slug}`, which is not an earlier stage") for slug in stage.runs),
    ]
    return [message for holds, message in tests if not holds]


def load(root: Path) -> Course:
    """Read the course at `root`.

    Raises CourseError where there is no manifest or it is wrong.
    """
    root = root.resolve()
    path = root / MANIFEST
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CourseError(f"`{path}` can't be read: {error}") from error
    return parse(text, root)


def find(start: Path) -> Course:
    """Load the course that `start` lies in, looking upwards.

    Raises CourseError where no folder above holds a manifest.
    """
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / MANIFEST).is_file():
            return load(folder)
    raise CourseError(f"`{start}` is not inside the course: no `{MANIFEST}` here or above")
