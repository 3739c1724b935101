"""Make a class of submissions from the samples, right, wrong and hostile, in every form that platforms know.

    python benchmarks/class_of.py /tmp/class --count 400
    python benchmarks/class_of.py /tmp/class --count 20 --whole --kinds correct,wrong

Each submission is one sample, with `--whole` one sample a stage. Which, and in which form, hangs on `--seed`.
"""

from __future__ import annotations

import io
import random
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from grader import course as courses
from grader import samples
from grader.course import Course

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("correct", "wrong", "hostile")
COURSE = ("exercises", "solutions", "tests_public", "tests_hidden", "hardware_profiles")
Files = dict[str, bytes]


def drawn(
    course: Course,
    count: int,
    *,
    kinds: Sequence[str] = KINDS,
    stages: Sequence[str] = (),
    whole: bool = False,
    seed: int = 0,
) -> list[Files]:
    """The files of so many submissions, of every kind as many; only of these stages, else of the course's."""
    draw = random.Random(seed)
    wanted = set(stages) or {stage.slug for stage in course.stages}
    pools = [[s for s in samples.load_all(whole_course(), kind) if s.stage in wanted] for kind in kinds]
    pools = [pool for pool in pools if pool]
    if not whole:
        return [draw.choice(pools[number % len(pools)]).handed_in for number in range(count)]
    works: list[Files] = [{} for _ in range(count)]
    for number, work in enumerate(works):
        for stage in reversed(course.stages):  # what a sample brings for an earlier stage gives way
            mine = [s for s in pools[number % len(pools)] if s.stage == stage.slug]
            work |= draw.choice(mine).handed_in if mine else {}
    return works


def whole_course() -> Course:
    """The course that the samples are of."""
    return courses.load(ROOT)


def write(works: Sequence[Files], folder: Path) -> None:
    """Write submissions into a folder, one form after another."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, files in enumerate(works):
        FORMS[number % len(FORMS)](folder, f"s{number:04}", files)


def _folder(folder: Path, name: str, files: Files) -> None:
    (folder / name).mkdir()
    for file, content in files.items():
        (folder / name / file).write_bytes(content)


def _zip(folder: Path, name: str, files: Files) -> None:
    with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for file, content in files.items():
            packed.writestr(f"my work/{file}", content)


def _tar(folder: Path, name: str, files: Files) -> None:
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as packed:
        for file, content in files.items():
            info = tarfile.TarInfo(file)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))


def _single(folder: Path, name: str, files: Files) -> None:
    if len(files) > 1:
        return _folder(folder, name, files)
    for file, content in files.items():
        (folder / f"{name}_{file}").write_bytes(content)


def _canvas(folder: Path, name: str, files: Files) -> None:
    number = int(name[1:])
    late = "LATE_" * (number % 2)
    for place, (file, content) in enumerate(files.items()):
        (folder / f"{name}_{late}{7000 + number}_{100 * number + place}_{file}").write_bytes(content)


def _moodle(folder: Path, name: str, files: Files) -> None:
    _folder(folder, f"{name}_{int(name[1:])}_assignsubmission_file_", files)


FORMS: tuple[Callable[[Path, str, Files], None], ...] = (_folder, _zip, _tar, _single, _canvas, _moodle)


def course_copy(folder: Path, *, stages: Sequence[str] = (), check_s: float = 0.0) -> Course:
    """Copy the course; only these of its stages, and this limit a check, where they are given."""
    for name in COURSE:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / courses.MANIFEST
    head, *tables = re.split(r"^(?=\[\[stage\]\])", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    kept = [table for table in tables if not stages or re.search(r'slug = "(\w+)"', table)[1] in stages]
    if check_s:
        kept = [re.sub(r"check_s = .*", f"check_s = {check_s}", table) for table in kept]
    path.write_text(head + "".join(kept), encoding="utf-8")
    return courses.load(folder)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--count", default=400, show_default=True)
@click.option("--kinds", default=",".join(KINDS), show_default=True)
@click.option("--whole", is_flag=True, help="A sample of every stage in each submission.")
@click.option("--seed", default=0, show_default=True)
def main(folder: Path, count: int, kinds: str, whole: bool, seed: int) -> None:
    """Make a class of submissions in FOLDER."""
    works = drawn(whole_course(), count, kinds=kinds.split(","), whole=whole, seed=seed)
    write(works, folder)
    click.echo(f"{len(works)} submissions in {folder}")


if __name__ == "__main__":
    main()
