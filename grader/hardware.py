"""Hardware profiles, `hardware_profiles/*.toml`: what a machine should reach, and which of them this is."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from grader.errors import CourseError

KINDS = ("spec", "measured", "derived", "lesson")
FALLBACK = "generic-cpu"
BYTES_PER_NUMBER = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number with where it is from; a figure without a source is not taken."""

    value: float
    kind: Literal["spec", "measured", "derived", "lesson"]
    source: str
    retrieved: str = ""


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to recognise the machine: every field that is given must hold; `cpu` is a regular expression."""

    system: str = ""
    machine: str = ""
    cpu: str = ""
    cores: int = 0
    device: Literal["cpu", "cuda", "mps"] = "cpu"


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Milliseconds a token at some positions, for a model, a dtype, with or without the cache."""

    model: str
    dtype: str
    cached: bool
    positions: tuple[int, ...]
    ms: tuple[float, ...]
    source: str


class HardwareProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One machine: `status` "predicted" until somebody has measured it there.

    `bandwidth_gb_s` is memory's, in 10⁹ bytes a second, `peak_tflops` 10¹² operations a second by dtype,
    `step_overhead_ms` what a step costs however little it computes. `scores` names the checks that may hold a
    student's figures against its curves, which may be passed by a factor of `slack`; all others report only.
    """

    name: str
    summary: str
    status: Literal["measured", "lesson", "predicted", "generic"]
    match: Match = Match()
    bandwidth_gb_s: Figure | None = None
    peak_tflops: dict[str, Figure] = {}
    step_overhead_ms: Figure | None = None
    curves: tuple[Curve, ...] = ()
    scores: tuple[Literal["latency"], ...] = ()
    slack: float = 1.5


@dataclass(frozen=True, slots=True)
class Here:
    """What of this machine a profile is matched against."""

    system: str
    machine: str
    cpu: str
    cores: int


def load(path: Path) -> HardwareProfile:
    """Read one profile.

    Raises CourseError with the file and what is wrong in it.
    """
    try:
        profile = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8-sig")), HardwareProfile)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise CourseError(f"hardware profile `{path.name}`: {error}") from error
    for wrong in _faults(profile, path.stem):
        raise CourseError(f"hardware profile `{path.name}`: {wrong}")
    return profile


def load_all(folder: Path) -> tuple[HardwareProfile, ...]:
    """Read every profile of a folder, by name; one for any machine is always among them.

    Raises CourseError for a wrong one.
    """
    profiles = tuple(load(path) for path in sorted(folder.glob("*.toml")))
    if any(profile.name == FALLBACK for profile in profiles):
        return profiles
    return (*profiles, HardwareProfile(FALLBACK, "Any machine.", "generic"))


def choose(
    profiles: tuple[HardwareProfile, ...], here: Here, wanted: str | None = None
) -> tuple[HardwareProfile, str]:
    """Choose the profile `wanted` by name, else the one that fits this machine most closely; and say why.

    Raises CourseError where `wanted` is not there.
    """
    by_name = {profile.name: profile for profile in profiles}
    if wanted is not None:
        if wanted not in by_name:
            raise CourseError(f"no hardware profile `{wanted}`: there are {', '.join(by_name)}")
        return by_name[wanted], "asked for"
    fitting = [
        (reasons, p) for p in profiles if p.match.device == "cpu" and (reasons := _reasons(p.match, here))
    ]
    if not fitting:
        return by_name[FALLBACK], "no other profile fits this machine"
    reasons, best = max(fitting, key=lambda pair: len(pair[0]))
    return best, ", ".join(reasons)


def this_machine() -> Here:
    """Look at the machine: system, architecture, CPU model, cores."""
    return Here(platform.system(), platform.machine(), cpu_model(), os.cpu_count() or 1)


def cpu_model() -> str:
    """The CPU's name as the system gives it."""
    try:
        if sys.platform == "darwin":
            command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def _reasons(match: Match, here: Here) -> list[str]:
    """Why a profile fits: each given field in words; nothing where any does not hold, or none is given."""
    tests = [
        (match.system, match.system == here.system, f"system {here.system}"),
        (match.machine, match.machine == here.machine, f"architecture {here.machine}"),
        (match.cpu, bool(match.cpu and re.search(match.cpu, here.cpu)), f"CPU {here.cpu}"),
        (match.cores, match.cores == here.cores, f"{here.cores} cores"),
    ]
    given = [(holds, words) for asked, holds, words in tests if asked]
    return [words for _, words in given] if all(holds for holds, _ in given) else []


def _faults(profile: HardwareProfile, stem: str) -> list[str]:
    """Say what a well-typed profile still has wrong."""
    figures = {"bandwidth_gb_s": profile.bandwidth_gb_s, "step_overhead_ms": profile.step_overhead_ms}
    figures |= {f"peak_tflops.{dtype}": figure for dtype, figure in profile.peak_tflops.items()}
    faults = [] if profile.name == stem else [f"name `{profile.name}` is not the file's"]
    for name, figure in figures.items():
        if figure is not None and not figure.source.strip():
            faults.append(f"{name} has no source")
        if figure is not None and not 0 < figure.value < float("inf"):
            faults.append(f"{name} is `{figure.value}`, not a positive number")
    faults += [f"peak_tflops has no dtype `{d}`" for d in profile.peak_tflops if d not in BYTES_PER_NUMBER]
    if not 1 <= profile.slack < float("inf"):
        faults.append(f"slack is `{profile.slack}`, not a factor of at least 1")
    if "latency" in profile.scores and not any(c.cached for c in profile.curves):
        faults.append("scores latency without a cached curve to hold it against")
    for number, curve in enumerate(profile.curves, 1):
        if len(curve.positions) != len(curve.ms) or list(curve.positions) != sorted(set(curve.positions)):
            faults.append(f"curve {number} needs as many ms as positions, these in rising order")
        if not curve.source.strip():
            faults.append(f"curve {number} has no source")
    try:
        re.compile(profile.match.cpu)
    except re.error as error:
        faults.append(f"match.cpu is no regular expression: {error}")
    return faults
