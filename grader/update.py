"""A newer release put over a student's repository: given files replaced, stage files merged, nothing lost.

A stage file that the student has changed is merged three-way: the stub as it was given, as it is given now,
and theirs. Where both changed the same lines their file stays as it is, and the merge with its markers lies
beside it, as `NAME.conflict`. Whatever of theirs is replaced is kept in `.grade/kept/`.
"""

from __future__ import annotations

import itertools
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grader import archive, given
from grader import report as reports
from grader.archive import MAX_UNPACKED_BYTES
from grader.faults import Mistake
from grader.given import Given, Release

CONFLICT = ".conflict"
KEPT = Path(".grade") / "kept"
MOST_CONFLICTS = 127  # git merge-file's exit status counts them up to here; beyond it is an error
LABELS = ("yours", "as given before", "as given now")


@dataclass(frozen=True, slots=True)
class Step:
    """What is to become of one file: its content after, None where it goes, and what to say of it.

    `base` is the stub that the next update is to merge from.
    """

    name: str
    content: bytes | None
    said: str = ""
    keeps: bytes | None = None
    base: bytes | None = None
    is_conflict: bool = False


def fetch(source: Path) -> Release:
    """Read a release: a folder or a zip of one.

    Raises Mistake where it is none, or not whole.
    """
    if source.is_dir():
        old = given.load(source)
        names = [given.MANIFEST.as_posix(), *(old.files if old else ())]
        files = {n: (source / n).read_bytes() for n in names if (source / n).is_file()}
        return given.whole(files, str(source))
    try:
        members = archive.members(source.read_bytes())
        files = {member.name: member.read(MAX_UNPACKED_BYTES + 1) for member in members}
    except Exception as error:  # a parser may raise anything over what is no archive
        raise Mistake(f"`{source}` is no folder and no zip of a release: {error}") from error
    tail = given.MANIFEST.as_posix()
    top = next((name.removesuffix(tail) for name in files if name.endswith(tail)), "")
    return given.whole({name.removeprefix(top): content for name, content in files.items()}, str(source))


def apply(release: Release, folder: Path) -> tuple[list[str], bool]:
    """Put a release over a folder; give what to say, and whether nothing is left for the student to mend.

    What the folder was given before is written last, so that an update that was cut short is begun again.
    """
    before = given.load(folder) or Given()
    steps = list(_steps(release, before, folder))  # all is read and merged before anything is written
    kept = _kept(folder)
    said = []
    for step in steps:
        if step.keeps is not None:
            reports.write(kept / step.name, step.keeps)
        if step.content is None:
            (folder / step.name).unlink(missing_ok=True)
        elif step.content != _read(folder / step.name):
            reports.write(folder / step.name, step.content)
        if step.said:
            where = f"; yours is kept as `{(kept / step.name).relative_to(folder)}`"
            said.append(f"{step.name}: {step.said}{where if step.keeps is not None else ''}")
    for step in steps:
        if step.base is not None:
            reports.write(given.stub_of(folder, step.name.removesuffix(CONFLICT)), step.base)
    given.write(folder, release.given)
    return said, not any(step.is_conflict for step in steps)


def _kept(folder: Path) -> Path:
    """A folder of its own for what this update replaces."""
    return next(path for n in itertools.count(1) if not (path := folder / KEPT / str(n)).exists())


def _steps(release: Release, before: Given, folder: Path) -> Iterator[Step]:
    for name, content in release.files.items():
        mine = _read(folder / name)
        if name in release.given.stages:
            yield from _stage(folder, name, mine, content)
        elif mine != content:
            is_theirs = mine is not None and given.digest(mine) != before.files.get(name)
            yield Step(name, content, "replaced" if is_theirs else "", mine if is_theirs else None)
    for name in before.files.keys() - release.files.keys():
        mine = _read(folder / name)
        if mine is None:
            continue
        if name not in before.stages and given.digest(mine) == before.files[name]:
            yield Step(name, None, "is given no longer, removed")
        else:
            yield Step(name, mine, "is given no longer; yours is left")


def _stage(folder: Path, name: str, mine: bytes | None, new: bytes) -> Iterator[Step]:
    """Say what becomes of a stage file."""
    base = _read(given.stub_of(folder, name)) or b""
    if (folder / (name + CONFLICT)).exists():
        what = f"an earlier conflict is open: mend `{name}{CONFLICT}`, move it to `{name}`, update again"
        yield Step(name + CONFLICT, (folder / (name + CONFLICT)).read_bytes(), what, is_conflict=True)
    elif mine is None or mine == base:
        what = "new" if mine is None else "changed; you had not begun"
        yield Step(name, new, "" if mine == new else what, base=new)
    elif new in (base, mine):
        yield Step(name, mine, base=new)
    else:
        content, is_clean = merged(mine, base, new)
        if is_clean:
            yield Step(name, content, "changes merged into your work", keeps=mine, base=new)
        else:
            what = f"conflict: `{name}` stays as it is; mend this file and move it there"
            yield Step(name + CONFLICT, content, what, base=new, is_conflict=True)


def merged(mine: bytes, base: bytes, new: bytes) -> tuple[bytes, bool]:
    """Merge three-way, in the student's own line ends; give the text and whether it is without conflicts.

    Where theirs is no text that could be merged, it is the new stub, as a conflict. Raises Mistake where
    there is no git.
    """
    is_dos = b"\r\n" in mine
    texts = tuple(text.replace(b"\r\n", b"\n") for text in (mine, base, new))
    with tempfile.TemporaryDirectory() as temporary:
        paths = [Path(temporary) / str(place) for place in range(len(texts))]
        for path, text in zip(paths, texts):
            path.write_bytes(text)
        labels = [part for label in LABELS for part in ("-L", label)]
        try:
            done = subprocess.run(
                ["git", "merge-file", "-p", "--diff3", *labels, *paths], capture_output=True
            )
        except OSError as error:
            raise Mistake(f"merging needs `git`, which can't be run: {error.strerror}; install it") from error
    if not 0 <= done.returncode <= MOST_CONFLICTS:
        return new, False
    content = done.stdout.replace(b"\n", b"\r\n") if is_dos else done.stdout
    return content, done.returncode == 0


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def update(folder: Path, source: Path) -> tuple[list[str], bool]:
    """Take a newer release over into a student's repository; as `apply`.

    Raises Mistake where it is the course itself, or `source` is no whole release.
    """
    if (folder / "solutions").is_dir() or (folder / "tests_hidden").is_dir():
        raise Mistake(f"`{folder}` is the course itself; `grade update` is for a student's copy of it")
    release = fetch(source)
    before = given.load(folder)
    if before and before.course != release.given.course:
        raise Mistake(f"`{source}` is of the course `{release.given.course}`, not of `{before.course}`")
    try:
        said, is_whole = apply(release, folder)
    except OSError as error:
        raise Mistake(f"`{folder}`: {error}; nothing is lost: mend it and update again") from error
    return [*said, f"{release.given.course} {release.given.version} is in place"], is_whole
