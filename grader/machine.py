"""The pretend computer that stage 3 is timed on: its clocks, its CPU and its GPUs with unfinished work."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

LAUNCH_S = 1e-4  # what a step costs the host that only hands it to a device
TICK_S = 1e-6  # what one reading of a clock costs
COMPUTE_THREADS = 3  # a step on the CPU uses this many: its CPU seconds are not its seconds
WALL_JUMPS_S = (-7.0, 3.0, -0.25, 60.0)  # how the wall clock is set while a step runs
_MPS_THERE = ("backends.mps.is_available", "backends.mps.is_built", "mps.is_available")


class NotCompiled(AssertionError):
    """What torch itself raises where it has no such GPU; the student's, who may catch it, and no check's."""

    for_the_student = True


class Machine:
    """A pretend computer: clocks, a CPU, and GPUs that go on working while the host runs ahead.

    A step on a GPU returns at once; only `synchronize` waits for it. Before a test's `prepare`, as while the
    student's file is imported, it seems to have every device.
    """

    def __init__(self) -> None:
        self.gpus: tuple[str, ...] = ("cuda:0", "cuda:1", "mps")
        self.device = "cpu"
        self.durations: tuple[float, ...] = ()
        self.busy_s = self.leftover_s = 0.0
        self.asleep = self.wall_jumps = False
        self.calls = 0
        self.now_s = self.cpu_s = self.wall_offset_s = 0.0
        self.done_at_s: dict[str, float] = {}

    def prepare(
        self,
        device: str,
        durations: Sequence[float],
        *,
        gpus: Sequence[str] = (),
        leftover_s: float = 0.0,
        busy_s: float = 0.0,
        asleep: bool = False,
        wall_jumps: bool = False,
    ) -> None:
        """Set the scene: where steps run and how long each works, in seconds.

        `gpus` are there besides; `leftover_s` of work is queued already on `device`; any wait for a GPU
        that is not `device` takes `busy_s`, since others use it; an `asleep` CPU step waits for a disk; with
        `wall_jumps` somebody sets the date meanwhile.
        """
        self.device = "cuda:0" if device == "cuda" else device
        self.gpus = tuple(dict.fromkeys([*gpus, *([self.device] if self.device != "cpu" else [])]))
        self.durations, self.busy_s, self.asleep, self.wall_jumps = (
            tuple(durations),
            busy_s,
            asleep,
            wall_jumps,
        )
        self.calls, self.leftover_s = 0, leftover_s
        self.done_at_s = {self.device: self.now_s + leftover_s}

    @property
    def seconds(self) -> list[float]:
        """What each step really takes."""
        return [d + (LAUNCH_S if self.device != "cpu" else 0.0) for d in self.durations]

    def step(self) -> None:
        """Run one step: the `step_fn` that a student times."""
        duration = self.durations[self.calls] if self.calls < len(self.durations) else 0.5
        self.calls += 1
        if self.device == "cpu":
            self.now_s += duration
            self.cpu_s += 0.0 if self.asleep else duration * COMPUTE_THREADS
        else:
            self.now_s += LAUNCH_S
            self.cpu_s += LAUNCH_S
            self.done_at_s[self.device] = max(self.done_at_s[self.device], self.now_s) + duration
        if self.wall_jumps:
            self.wall_offset_s += WALL_JUMPS_S[self.calls % len(WALL_JUMPS_S)]

    def hooks(self) -> dict[str, Callable[..., Any]]:
        """Return what must stand at each dotted name before the student's file is imported."""
        hooks: dict[str, Callable[..., Any]] = {"time.sleep": self._sleep, "timeit.default_timer": self._perf}
        clocks = {"perf_counter": self._perf, "monotonic": self._monotonic, "time": self._wall}
        clocks |= {"process_time": self._cpu, "thread_time": self._thread}
        for name, clock in clocks.items():
            hooks[f"time.{name}"] = clock
            hooks[f"time.{name}_ns"] = _nanoseconds(clock)
        if hasattr(time, "clock_gettime"):
            hooks["time.clock_gettime"] = self._clock_gettime
            hooks["time.clock_gettime_ns"] = _nanoseconds(self._clock_gettime)
        cuda: dict[str, Callable[..., Any]] = {
            "synchronize": self._cuda_synchronize,
            "is_available": lambda: self._count("cuda") > 0,
            "device_count": lambda: self._count("cuda"),
            "current_device": self._cuda_index,
        }
        hooks |= {f"torch.cuda.{name}": hook for name, hook in cuda.items()}
        hooks |= {f"torch.{name}": lambda: "mps" in self.gpus for name in _MPS_THERE}
        hooks["torch.mps.synchronize"] = self._mps_synchronize
        hooks["torch.mps.device_count"] = lambda: self._count("mps")
        hooks["torch.accelerator.synchronize"] = self._accelerator_synchronize
        hooks["torch.accelerator.is_available"] = lambda: bool(self.gpus)
        hooks["torch.accelerator.device_count"] = lambda: self._count(self._accelerator())
        hooks["torch.accelerator.current_accelerator"] = self._current_accelerator
        return hooks

    def _sleep(self, seconds: float, /) -> None:
        self.now_s += max(float(seconds), 0.0)

    def _read(self) -> float:
        self.now_s += TICK_S
        return self.now_s

    def _perf(self) -> float:
        return 1_000.0 + self._read()

    def _monotonic(self) -> float:
        return 70_000.0 + self._read()

    def _wall(self) -> float:
        return 1.7e9 + self._read() + self.wall_offset_s

    def _cpu(self) -> float:
        self._read()
        return 3.0 + self.cpu_s

    def _thread(self) -> float:
        self._read()
        return 2.0 + self.cpu_s / COMPUTE_THREADS / 2

    def _clock_gettime(self, clk_id: int, /) -> float:
        kinds = {"REALTIME": self._wall, "TAI": self._wall}
        kinds |= {"PROCESS_CPUTIME_ID": self._cpu, "THREAD_CPUTIME_ID": self._thread}
        clocks = {getattr(time, f"CLOCK_{kind}", None): clock for kind, clock in kinds.items()}
        return clocks.get(clk_id, self._monotonic)()

    def _count(self, kind: str) -> int:
        return sum(gpu.split(":")[0] == kind for gpu in self.gpus)

    def _cuda_index(self) -> int:
        """Return the current CUDA device: the one that steps run on, as a program that uses it would set."""
        return int(self.device[5:]) if self.device.startswith("cuda:") else 0

    def _wait(self, gpu: str) -> None:
        """Let the host wait until a GPU has nothing more to do."""
        self.now_s = (
            max(self.now_s, self.done_at_s.get(gpu, 0.0)) if gpu == self.device else self.now_s + self.busy_s
        )

    def _cuda_synchronize(self, device: torch.device | str | int | None = None) -> None:
        if not self._count("cuda"):
            raise NotCompiled("Torch not compiled with CUDA enabled")
        index = device if isinstance(device, int) else None
        if isinstance(device, str | torch.device):
            where = torch.device(device)
            if where.type != "cuda":
                raise ValueError(f"Expected a cuda device, but got: {device}")
            index = where.index
        elif device is not None and index is None:
            raise TypeError(f"a device is a torch.device, str or int, not {type(device).__name__}")
        gpu = f"cuda:{self._cuda_index() if index is None or index == -1 else index}"
        if gpu not in self.gpus:
            raise RuntimeError("CUDA error: invalid device ordinal")
        self._wait(gpu)

    def _mps_synchronize(self) -> None:
        if "mps" not in self.gpus:
            raise RuntimeError("Cannot execute deviceSynchronize() without MPS backend.")
        self._wait("mps")

    def _accelerator(self) -> str:
        """Return the kind of GPU that torch would call the accelerator: CUDA where there are both."""
        mine = self.device.split(":")[0]
        return mine if mine != "cpu" else "cuda" if self._count("cuda") else "mps" if self.gpus else ""

    def _current_accelerator(self, check_available: bool = False) -> torch.device | None:
        return torch.device(self._accelerator()) if self.gpus else None

    def _accelerator_synchronize(self, device: torch.device | str | int | None = None, /) -> None:
        kind = self._accelerator()
        if not kind:
            raise RuntimeError("Cannot access accelerator device when none is available.")
        if isinstance(device, str | torch.device) and torch.device(device).type != kind:
            raise ValueError(f"{torch.device(device).type} doesn't match the current accelerator {kind}.")
        self._mps_synchronize() if kind == "mps" else self._cuda_synchronize(device)


def _nanoseconds(clock: Callable[..., float]) -> Callable[..., int]:
    """Make the `_ns` twin of a clock."""
    return lambda *args: round(clock(*args) * 1e9)
