"""Figures as the command line asks for them: the memory calculator's answer, the plots of a measurement."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grader import memory
from grader.course import Course
from grader.faults import Mistake, written
from grader.memory import BYTES, SHORT, Question

if TYPE_CHECKING:
    from grader.hardware import HardwareProfile
    from grader.tables import Tables

DTYPES = (*SHORT, *BYTES)
ALL_MODELS = "list"
NO_WINDOW = "0"
PIPE_WIDTH = 100
RESULTS = "results"
PLOTS = ("latency", "memory", "work", "total")  # in the order of the page; the tables have the same names
NO_MATPLOTLIB = "`grade plot` needs matplotlib: pip install 'matplotlib>=3.8'"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options of `grade memory` say."""

    model: str
    context: str | None = None
    users: int = 1
    dtype: str = "bf16"
    kv_heads: int | None = None
    window: str | None = None
    json: Path | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """The files that were written, and what there is to remark."""

    written: tuple[Path, ...]
    remarks: tuple[str, ...]


def remember(asked: Asked) -> str:
    """What weights and cache need, or which models there are, as text; the answer goes to `json` too.

    Raises Mistake for a model, a number of tokens or of heads that can't be.
    """
    from grader.render import footprint as rendered

    width = shutil.get_terminal_size((PIPE_WIDTH, 25)).columns
    if asked.model == ALL_MODELS:
        return rendered.models(memory.shapes().values(), width)
    try:
        question = _question(asked)
        footprint = memory.footprint(question)
    except ValueError as error:
        raise Mistake(str(error)) from error
    if asked.json:
        _write_json(asked.json, footprint)
    return rendered.answer(question, footprint, width)


def _question(asked: Asked) -> Question:
    shape = memory.find(asked.model)
    context = shape.context if asked.context is None else memory.tokens(asked.context)
    window = None if asked.window is None else 0 if asked.window == NO_WINDOW else memory.tokens(asked.window)
    dtype = SHORT.get(asked.dtype, asked.dtype)
    return Question(shape, context, asked.users, dtype, asked.kv_heads, window)


def _write_json(path: Path, footprint: memory.Footprint) -> None:
    import msgspec

    written(path, msgspec.json.format(msgspec.json.encode(footprint)) + b"\n")


def plot(course: Course, folder: Path | None, profile: str | None) -> Drawn:
    """Draw the tables of a folder, by default the course's, as SVG and PNG beside them.

    Raises Mistake where there is nothing to draw, or a table is garbled.
    """
    from grader import tables

    folder = folder or _results(course)
    try:
        found = tables.load(folder)
    except ValueError as error:
        raise Mistake(str(error)) from error
    missing = tuple(
        f"no rows in `{folder / name}.csv`: not drawn" for name in PLOTS if not getattr(found, name)
    )
    if len(missing) == len(PLOTS):
        raise Mistake(f"nothing to draw in `{folder}`: `grade measure` writes the tables there")
    box, remarks = _profile(course, found, profile)
    return Drawn(_draw(folder, found, box), (*missing, *remarks))


def for_page(course: Course) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The SVG of the plots in the course's results, fit to stand in a page, and what there is to remark.

    Only what `grade plot` drew from the tables as they are now; nothing is drawn here.
    """
    from grader.render import svg

    folder = course.root / RESULTS
    texts, remarks = [], []
    for name in PLOTS:
        table, path = folder / f"{name}.csv", folder / f"{name}.svg"
        try:
            if not path.is_file() or path.stat().st_mtime < table.stat().st_mtime:
                remarks += [
                    f"`{path}` is not drawn, or older than its table: `grade plot` draws it"
                ] * table.is_file()
            else:
                texts.append(svg.checked(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            remarks.append(f"`{path}` is left out of the page: {error}")
    return tuple(texts), tuple(remarks)


def _results(course: Course) -> Path:
    """The course's results, named from the working folder where they lie inside it."""
    path = course.root / RESULTS
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _profile(
    course: Course, found: Tables, wanted: str | None
) -> tuple[HardwareProfile | None, tuple[str, ...]]:
    """The profile asked for, or else the one of the measurement; and what it lacks for a roofline."""
    from grader import hardware

    profiles = {profile.name: profile for profile in hardware.load_all(course.profiles)}
    name = wanted or found.profile
    if wanted and wanted not in profiles:
        raise Mistake(f"no hardware profile `{wanted}`: there are {', '.join(profiles)}")
    if name not in profiles:
        return None, ("no hardware profile is known for these tables: no roofline; --profile names one",)
    return profiles[name], tuple(_lacking(profiles[name], found))


def _lacking(profile: HardwareProfile, found: Tables) -> Iterator[str]:
    """Why something of the profile, or all of it, is not drawn over the steps."""
    devices = {step.device.partition(":")[0] for step in found.latency}
    if found.latency and profile.match.device not in devices:
        theirs, ours = profile.match.device, ", ".join(sorted(devices))
        yield f"profile `{profile.name}` is of a {theirs}, the steps of a {ours}: it is not drawn"
    elif profile.bandwidth_gb_s is None:
        yield f"profile `{profile.name}` has no bandwidth: no roofline"
    for model in dict.fromkeys(step.model for step in found.latency):
        if memory.known(model) is None:
            yield f"the sizes of model `{model}` are not in `models.toml`: no roofline"


def _draw(folder: Path, found: Tables, profile: HardwareProfile | None) -> tuple[Path, ...]:
    try:
        from grader.render import plots
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise Mistake(NO_MATPLOTLIB) from error
    written = []
    for drawn in plots.draw(found, profile):
        for suffix, content in ((".svg", drawn.svg().encode()), (".png", drawn.png())):
            path = folder / f"{drawn.name}{suffix}"
            try:
                path.write_bytes(content)
            except OSError as error:
                raise Mistake(f"`{path}` can't be written: {error.strerror}") from error
            written.append(path)
    return tuple(written)
