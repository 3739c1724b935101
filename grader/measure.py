"""`grade measure`: the lesson's tables on the student's hardware, beside what the student predicted."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch

from grader import bench, decoding, hardware, records, subject
from grader.bench import Bench, Task
from grader.course import Course
from grader.decoding import PATIENT, QUICK, Effort
from grader.faults import Mistake
from grader.meter import Meter, remark, show
from grader.records import Measurements, Row, Settings

BUSY_PER_CORE = 0.5
PROMPT = 12  # positions, as in the lesson
N_NEW, N_NEW_QUICK = 1000, 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command's options say; `source` is the folder of the stage files, `name` a profile's."""

    model: str = "small"
    device: str = "cpu"
    dtype: str = "float32"
    n_new: int | None = None
    quick: bool = False
    out: Path | None = None
    fresh: bool = False
    source: str | None = None
    name: str | None = None
    predictions: dict[str, float] = field(default_factory=dict)


def run(course: Course, wanted: Wanted) -> None:
    """Measure the student's own stages, write tables and figures, show them.

    Raises Mistake for options that can't be had, SubmissionError for stages that can't be run.
    """
    source = _source(course, wanted.source)
    device, dtype = device_of(wanted.device), dtype_of(wanted.dtype, wanted.device)
    student = subject.load(course, source, wanted.model, device, dtype)
    settings = settings_of(wanted, str(source), subject.digest(course, source), student.shape.context)
    table = Bench(student, settings, effort(wanted), text_for(student, settings))
    timed_steps = student.stages["stage3"].timed_steps
    tasks = [
        *table.tasks(),
        *table.lesson(),
        Task("clocks", "your clock and the grader's", 300, lambda so_far: table.clocks(timed_steps)),
    ]
    files = {slug: Path(str(module.__file__)) for slug, module in student.stages.items()}
    with subject.blamed(files):
        carry_out(course, tasks, wanted, settings, remarks(wanted, settings, student.shape.context))


def carry_out(
    course: Course, tasks: Sequence[Task], wanted: Wanted, settings: Settings, notes: tuple[str, ...]
) -> None:
    """Do the tasks that an earlier run has not done, keep each as it is done, show them all."""
    from grader.render import measured

    out = wanted.out or course.root / "results"
    found = _begun(course, out, wanted, settings, notes)
    ahead = {task.name: task.weight for task in tasks if found.record(task.name) is None}
    if len(ahead) < len(tasks):
        remark(f"going on from `{out / records.FILE}`: {len(tasks) - len(ahead)} of {len(tasks)} are done")
    try:
        with Meter(sum(ahead.values())) as meter:
            for grown in bench.carried_out(tasks, found, lambda task: meter.starting(task.says)):
                found = msgspec.structs.replace(grown, summary=summary(grown))
                _keep(found, out)
                meter.done(ahead[found.records[-1].name])
    except KeyboardInterrupt:
        done = sum(found.record(task.name) is not None for task in tasks)
        remark(f"\nkept {done} of {len(tasks)} measurements in `{out}`; the same command goes on from there")
        raise
    found = msgspec.structs.replace(found, summary=summary(found))
    _keep(found, out)
    show(measured.render(found))
    remark(f"wrote {out / records.FILE} and {', '.join(_tables(found))}")


def settings_of(wanted: Wanted, code: str, digest: str, context: int) -> Settings:
    """The settings of a run: as many new tokens as were asked for and as fit."""
    asked = wanted.n_new or (N_NEW_QUICK if wanted.quick else N_NEW)
    prompt = min(PROMPT, context // 2)
    n_new = min(asked, context - prompt)
    name = Path(wanted.model).name if Path(wanted.model).is_dir() else wanted.model
    threads = torch.get_num_threads()
    return Settings(name, wanted.device, wanted.dtype, prompt, n_new, wanted.quick, code, digest, threads)


def remarks(wanted: Wanted, settings: Settings, context: int) -> tuple[str, ...]:
    """Say what does not fit the model, and what else keeps the machine busy."""
    sizes = sorted({size for size in (*bench.POSITIONS, *bench.CONTEXTS) if size > context})
    notes = []
    if sizes:
        words = ", ".join(f"{size:,}" for size in sizes)
        notes.append(f"`{settings.model}` reads {context:,} positions at most: {words} left out")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > BUSY_PER_CORE * (os.cpu_count() or 1):
        notes.append(f"load {load:.1f} on {os.cpu_count()} cores: timings are noisy, close other programs")
    if wanted.n_new and settings.n_new < wanted.n_new:
        notes.append(
            f"{settings.n_new:,} new tokens fit after a prompt of {settings.prompt}, not {wanted.n_new:,}"
        )
    return tuple(notes)


def text_for(model: subject.Subject, settings: Settings) -> torch.Tensor:
    """The text (1, context) that is read and continued."""
    return bench.sample_text(model.shape.context, model.shape.vocab_size, settings.prompt, model.device)


def effort(wanted: Wanted) -> Effort:
    """How long each comparison may take."""
    return QUICK if wanted.quick else PATIENT


def summary(found: Measurements) -> Row:
    """The figures that predictions are held against, and the totals; those that are measured already."""
    figures: Row = {}
    steps = {row["mode"]: row["ms_median"] for row in found.table("latency")[-2:]}
    totals = {row["mode"]: row for row in found.table("total")}
    if steps:
        cached, uncached = float(steps["cached"] or 0), float(steps["uncached"] or 0)
        figures |= {"position": found.table("latency")[-1]["position"], "ms": cached, "ms_uncached": uncached}
        figures["speedup"] = round(uncached / cached, 2)
    if memory := found.table("memory"):
        row = memory[-1]
        figures["bytes"] = int(row["cache_bytes"] or 0) // int(row["position"] or 1)
    if batch := found.table("batch"):
        rates = [float(row["tokens_per_s"] or 0) for row in batch]
        figures["batch"] = round(rates[-1] / rates[0], 2)
    for mode, row in totals.items():
        figures[f"seconds_{mode}"] = row["seconds"]
    if "uncached" in totals:
        figures["sampled"] = totals["uncached"]["sampled"] == "yes"
    if record := found.record("cached"):
        figures["tokens_equal"] = record.figures["first_mismatch"] is None
    figures["allocator"] = decoding.allocator(torch.device(found.settings.device))
    return figures


def _begun(
    course: Course, out: Path, wanted: Wanted, settings: Settings, notes: tuple[str, ...]
) -> Measurements:
    """Nothing yet, or what an earlier run with the same settings and the same code has measured."""
    from grader.computer import machine_info

    profile, _ = hardware.choose(hardware.load_all(course.profiles), hardware.this_machine())
    new = Measurements(machine_info(), profile.name, settings, wanted.predictions, remarks=notes)
    earlier = None if wanted.fresh else records.load(out)
    if earlier is None or not records.resumable(earlier, new):
        return new
    predictions = earlier.predictions | wanted.predictions
    return msgspec.structs.replace(new, records=earlier.records, predictions=predictions)


def _keep(found: Measurements, out: Path) -> None:
    try:
        records.save(found, out)
    except OSError as error:
        raise Mistake(
            f"`{out}` can't be written: {error.strerror}; name another folder with --out"
        ) from error


def _tables(found: Measurements) -> list[str]:
    return [f"{name}.csv" for name in records.COLUMNS if found.table(name)]


def _source(course: Course, name: str | None) -> Path:
    """The folder of the stage files: the course's exercises, or one that is named."""
    if name is None:
        return course.exercises
    found = next((place for place in (Path(name), course.root / name) if place.is_dir()), None)
    if found is None:
        raise Mistake(f"no folder `{name}` with stage files")
    return found.resolve()


def device_of(name: str) -> torch.device:
    """The device of this name.

    Raises Mistake where torch finds none.
    """
    there: dict[str, Callable[[], bool]] = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
    }
    if name in there and not there[name]():
        raise Mistake(f"torch finds no `{name}` here; `grade doctor` says what there is")
    return torch.device(name)


def dtype_of(name: str, device: str) -> torch.dtype:
    """The dtype of this name.

    Raises Mistake where the device has none such.
    """
    if (device, name) == ("mps", "float64"):
        raise Mistake("`mps` knows no float64: take another dtype or `--device cpu`")
    dtype: torch.dtype = getattr(torch, name)
    return dtype
