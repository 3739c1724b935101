"""`grade measure --calibrate`: measures what this machine can do and writes a hardware profile of it.

A step with the cache reads all weights once and computes little, so memory's bandwidth is measured where it
matters: by a matrix times a vector. A step without a cache computes, and that is a matrix times a matrix.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, cast

import torch

from grader import bench, decoding, hardware, subject, timing
from grader import report as reports
from grader.course import Course
from grader.decoding import Effort
from grader.errors import CourseError
from grader.faults import Mistake
from grader.hardware import Curve, Figure, HardwareProfile, Match
from grader.measure import PROMPT, Wanted, device_of
from grader.meter import Meter, remark
from grader.timing import Arm, Estimate

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
MODEL = "small"
SLACK = 2.0  # how many times as long as the solution a right but plainer step may take
MIB = 2**20
Kind = Literal["cpu", "cuda", "mps"]


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the probes are; memory's have to be far larger than the processor's own caches."""

    matrix_mib: int = 256
    product: int = 1536  # rows and columns of both factors
    layers: int = 12  # of the model without width that shows what a step costs at least
    positions: tuple[int, ...] = (1, 64, 128, 256, 384, 512)
    effort: Effort = decoding.PATIENT


QUICK = Scale(matrix_mib=64, product=512, positions=(1, 128, 512), effort=decoding.QUICK)


@dataclass(frozen=True, slots=True)
class Probe:
    """Where and how the figures of one profile are measured."""

    device: torch.device
    scale: Scale

    def bandwidth(self) -> dict[str, float]:
        """10⁹ bytes a second that a matrix-vector product reads, `matvec`, and that a copy moves, `copy`."""
        rows = 1024
        numbers = self.scale.matrix_mib * MIB // torch.float32.itemsize
        matrix = torch.ones(rows, numbers // rows, device=self.device)
        vector, copied = matrix[0].clone(), torch.empty_like(matrix)
        arms = {"matvec": self._arm(lambda: matrix @ vector), "copy": self._arm(lambda: copied.copy_(matrix))}
        found = decoding.in_turn(arms, self.scale.effort)
        read_and_written = 2 * matrix.nbytes
        return {
            "matvec": matrix.nbytes / found["matvec"].value / 1e9,
            "copy": read_and_written / found["copy"].value / 1e9,
        }

    def tflops(self, dtypes: Mapping[str, torch.dtype]) -> dict[str, float]:
        """10¹² operations a second of a matrix product, by dtype; those that it lacks are left out."""
        n = self.scale.product
        arms: dict[str, Arm] = {}
        for name, dtype in dtypes.items():
            try:
                square = torch.ones(n, n, device=self.device, dtype=dtype)
                arms[name] = self._arm(partial(torch.matmul, square, square))
                arms[name]()
            except (RuntimeError, TypeError):  # MPS has no float64
                arms.pop(name, None)
        return {
            name: 2 * n**3 / e.value / 1e12 for name, e in decoding.in_turn(arms, self.scale.effort).items()
        }

    def overhead_s(self, given: Any) -> float:
        """Seconds of a step of a model of one number a position, which has hardly anything to compute."""
        cfg = given.Config(n_layer=self.scale.layers, n_head=1, n_embd=1, block_size=8, vocab_size=2)
        model = given.GPT(cfg).to(self.device).eval()
        idx = torch.zeros(1, 1, dtype=torch.int64, device=self.device)
        step = self._arm(lambda: model(idx)[:, -1].argmax(dim=-1))
        return decoding.in_turn({"step": step}, self.scale.effort)["step"].value

    def curve(self, model: subject.Student, position: int) -> dict[str, Estimate]:
        """Seconds of a step of the small model, with the cache and without, on one thread as in grading."""
        shape, threads = model.shape, torch.get_num_threads()
        text = bench.sample_text(shape.context, shape.vocab_size, PROMPT, self.device)
        torch.set_num_threads(1)
        try:
            return decoding.latency(model, text, position, self.scale.effort)
        finally:
            torch.set_num_threads(threads)

    def _arm(self, call: Callable[[], object]) -> Arm:
        wait = decoding.waiter(self.device)
        return lambda: timing.timed(call, wait)[0]


def run(course: Course, wanted: Wanted) -> None:
    """Measure this machine and write its profile.

    Raises Mistake for a name that can't be had, CourseError where the course's solutions are not there.
    """
    scale = QUICK if wanted.quick else Scale()
    device = device_of(wanted.device)
    name = wanted.name or default_name(device)
    path = (wanted.out or course.profiles) / f"{name}.toml"
    if not NAME.match(name):
        raise Mistake(f"`{name}` can't be a profile's name: take lower-case letters, digits and hyphens")
    if path.exists():
        raise Mistake(f"`{path}` is there already: choose another name with --name, or delete it")
    if not course.solutions.is_dir():
        raise CourseError("--calibrate measures with `solutions/`, which a student's copy has not")
    profile = measured(course, Probe(device, scale), name)
    try:
        reports.write(path, to_toml(profile))
    except OSError as error:
        raise Mistake(f"`{path}` can't be written: {error.strerror}") from error
    hardware.load(path)
    remark(f"wrote {path}; `grade doctor` says which profile fits, `--profile {name}` asks for this one")


def default_name(device: torch.device) -> str:
    """A name that follows from the processor, its cores and the device."""
    here = hardware.this_machine()
    return "-".join(re.findall(r"[a-z0-9]+", f"{here.cpu} {here.cores} {device.type}".lower()))


@torch.no_grad()
def measured(course: Course, probe: Probe, name: str) -> HardwareProfile:
    """Measure all figures of a profile."""
    here, scale, kind = hardware.this_machine(), probe.scale, cast(Kind, probe.device.type)
    threads = f", {torch.get_num_threads()} threads" if kind == "cpu" else ""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    how = f"`grade measure --calibrate`, torch {torch.__version__} on {kind}{threads}{load}"
    day = datetime.now(UTC).date().isoformat()

    def figure(value: float, what: str) -> Figure:
        return Figure(round(value, 6), "measured", f"{how}: {what}", day)

    with Meter(len(scale.positions) + 3) as meter:
        meter.starting("bandwidth")
        bandwidth = probe.bandwidth()
        meter.done(1)
        meter.starting("operations a second")
        tflops = probe.tflops(subject.DTYPES)
        meter.done(1)
        meter.starting("overhead of a step")
        model = subject.load(course, course.solutions, MODEL, probe.device, torch.float32)
        overhead_s = probe.overhead_s(model.given)
        meter.done(1)
        steps = {}
        for position in (p for p in scale.positions if p <= model.shape.context):
            meter.starting(f"`{MODEL}` at position {position}")
            steps[position] = probe.curve(model, position)
            meter.done(1)
    copy = f"a copy moves {bandwidth['copy']:.1f} GB/s"
    reading = f"a float32 matrix of {scale.matrix_mib} MiB times a vector; {copy}"
    alone = ", on one thread" if kind == "cpu" else ""
    product = f"a product of two {scale.product} by {scale.product} matrices"
    least = f"a step of a model of {scale.layers} layers of width 1, median"
    return HardwareProfile(
        name=name,
        summary=f"{here.cpu}, {here.cores} cores, on its {kind}: measured on {day}.",
        status="measured",
        match=Match(here.system, here.machine, re.escape(here.cpu), here.cores, kind),
        bandwidth_gb_s=figure(bandwidth["matvec"], reading),
        peak_tflops={dtype: figure(value, product) for dtype, value in tflops.items()},
        step_overhead_ms=figure(overhead_s * 1e3, least),
        curves=tuple(
            _curve(steps, mode, f"{how}, on {day}: the course's solution{alone}")
            for mode in ("cached", "uncached")
        ),
        scores=("latency",) if kind == "cpu" else (),  # stage 3 runs on the CPU
        slack=SLACK,
    )


def to_toml(profile: HardwareProfile) -> str:
    """A profile as TOML that `hardware.load` reads back."""
    keys = ("name", "summary", "status", "slack", "scores")
    lines = [f"{key} = {_toml(getattr(profile, key))}" for key in keys]
    match = {key: getattr(profile.match, key) for key in profile.match.__struct_fields__}
    tables: list[tuple[str, dict[str, Any]]] = [("[match]", {key: v for key, v in match.items() if v})]
    figures = {"bandwidth_gb_s": profile.bandwidth_gb_s, "step_overhead_ms": profile.step_overhead_ms}
    figures |= {f"peak_tflops.{dtype}": figure for dtype, figure in profile.peak_tflops.items()}
    tables += [(f"[{key}]", _fields(figure)) for key, figure in figures.items() if figure]
    tables += [("[[curves]]", _fields(curve)) for curve in profile.curves]
    for header, fields in tables:
        lines += ["", header, *(f"{key} = {_toml(value)}" for key, value in fields.items())]
    return "\n".join(lines) + "\n"


def _fields(value: Figure | Curve) -> dict[str, Any]:
    return {key: getattr(value, key) for key in value.__struct_fields__}


def _toml(value: object) -> str:
    """A string, number, boolean or row of numbers; JSON writes these as TOML does."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _curve(steps: Mapping[int, Mapping[str, Estimate]], mode: str, source: str) -> Curve:
    ms = tuple(decoding.ms(found[mode].value) for found in steps.values())
    return Curve(MODEL, "float32", mode == "cached", tuple(steps), ms, source)
