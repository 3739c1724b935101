"""The measurements: steps with and without the cache, their arithmetic, the cache's bytes, copying.

A step at position p reads or continues a text so that it has p positions then, and picks the next token. Two
things that are compared are measured in turn. How many rounds there are follows from how long one takes.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from grader import roofline, timing
from grader.records import Row
from grader.subject import Shape, Subject
from grader.timing import Arm, Estimate

REACH = 8  # a cached step at p is measured at p-8 … p+8, one after the other, as it comes in real decoding
PAIR = 2  # rounds, one in each direction
PIECE = 16  # positions fed at once while a cache grows, so that little else is in memory beside it
KEYS_AND_VALUES = 2


@dataclass(frozen=True, slots=True)
class Effort:
    """How long one comparison may take, and the bounds of its rounds."""

    seconds: float = 2.0
    least: int = 6
    most: int = 40


PATIENT = Effort()
QUICK = Effort(0.25, 2, 10)


@dataclass
class Chain:
    """Cached decoding around one position: every step feeds one more position of the text (B, positions)."""

    subject: Subject
    text: torch.Tensor
    position: int
    past: Any = field(default=None, init=False)
    next: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        reach = min(REACH, self.position - 1, self.text.shape[1] - self.position)
        self.first, self.last = self.position - reach, self.position + reach
        self.next = self.last + 1

    def step(self) -> float:
        """Do one step and say how many seconds it took; going back to the first position is not counted."""
        if self.next > self.last:
            self.past, self.next = prefilled(self.subject, self.text, self.first - 1), self.first
        new = self.text[:, self.next - 1 : self.next]
        seconds, (_, self.past) = timing.timed(
            lambda: picked(self.subject.cached(new, self.past)), waiter(self.subject.device)
        )
        self.next += 1
        return seconds


def waiter(device: torch.device) -> Callable[[], object] | None:
    """What waits for the work of a device; nothing for the CPU."""
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    return torch.mps.synchronize if device.type == "mps" else None


def picked(answer: tuple[torch.Tensor, Any]) -> tuple[torch.Tensor, Any]:
    """The next token of each row, and the cache."""
    logits, past = answer
    return logits[:, -1].argmax(dim=-1), past


def prefilled(subject: Subject, text: torch.Tensor, positions: int) -> Any:
    """A cache of the first `positions` of a text, read in one call; None for no positions."""
    return subject.cached(text[:, :positions], None)[1] if positions else None


def uncached(subject: Subject, text: torch.Tensor, position: int) -> Arm:
    """A step that reads the whole text."""
    idx, wait = text[:, :position], waiter(subject.device)
    return lambda: timing.timed(lambda: subject.uncached(idx)[:, -1].argmax(dim=-1), wait)[0]


@torch.no_grad()
def in_turn(arms: Mapping[str, Arm], effort: Effort) -> dict[str, Estimate]:
    """Measure arms in turn, as many rounds as the effort allows; the seconds of each."""
    for arm in arms.values():
        arm()  # warms up
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    begun = time.perf_counter()
    rounds = 0
    while rounds < effort.least or (rounds < effort.most and time.perf_counter() - begun < effort.seconds):
        for name, samples in timing.interleaved(arms, PAIR, warmup=0).items():
            seconds[name] += samples
        rounds += PAIR
    return {name: timing.estimate(samples) for name, samples in seconds.items()}


def latency(subject: Subject, text: torch.Tensor, position: int, effort: Effort) -> dict[str, Estimate]:
    """Seconds of a step at a position, `cached` and `uncached`."""
    chain = Chain(subject, text, position)
    return in_turn({"cached": chain.step, "uncached": uncached(subject, text, position)}, effort)


@torch.no_grad()
def work(subject: Subject, text: torch.Tensor, context: int) -> dict[str, int]:
    """Floating-point operations of a step at a context, as torch counts them: a multiply-add is two.

    Attention is done in its plain form while they are counted: fused kernels are not always counted.
    """
    past = prefilled(subject, text, context - 1)
    return {
        "cached": counted(lambda: subject.cached(text[:, context - 1 : context], past)),
        "uncached": counted(lambda: subject.uncached(text[:, :context])),
    }


def counted(call: Callable[[], object]) -> int:
    """The floating-point operations of a call."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


def formula_flops(shape: Shape, new: int, positions: int) -> int:
    """What GPT-2 computes for `new` positions that look at `positions`; a masked score is computed too."""
    width = shape.n_kv_head * shape.head_dim
    return int(roofline.gpt2_flops(shape.n_layer, width, shape.vocab_size, new=new, keys=positions))


@torch.no_grad()
def memory(subject: Subject, text: torch.Tensor, positions: Sequence[int]) -> list[dict[str, int]]:
    """The bytes of a cache that grows to each of these positions, and what the process then holds more."""
    gc.collect()
    kept, past, rows = 0, None, []
    before = allocated(subject.device)
    for position in sorted(positions):
        while kept < position:
            some = min(PIECE, position - kept)
            past = subject.cached(text[:, kept : kept + some], past)[1]
            kept += some
        rows.append(
            {
                "position": position,
                "cache_bytes": subject.cache_bytes(past),
                "formula_bytes": subject.bytes_per_position() * position,
                "allocator_bytes": max(0, allocated(subject.device) - before),
            }
        )
    return rows


def allocated(device: torch.device) -> int:
    """Bytes in use: by the device's allocator where there is one, else by this whole process (its RSS)."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    if device.type == "mps":
        return int(torch.mps.current_allocated_memory())
    return int(psutil.Process().memory_info().rss)


def allocator(device: torch.device) -> str:
    """What `allocated` asks, in words."""
    return f"{device.type} allocator" if device.type in ("cuda", "mps") else "RSS of the process"


@torch.no_grad()
def copying(subject: Subject, position: int, effort: Effort) -> tuple[dict[str, Estimate], int]:
    """Seconds to make all layers' caches one position longer, by `cat` and in a buffer; and cat's bytes."""
    s, wait = subject.shape, waiter(subject.device)
    like = torch.zeros((), dtype=subject.dtype, device=subject.device)
    olds = [
        like.new_zeros(1, s.n_kv_head, position - 1, s.head_dim) for _ in range(KEYS_AND_VALUES * s.n_layer)
    ]
    rooms = [like.new_zeros(1, s.n_kv_head, s.context, s.head_dim) for _ in olds]
    new = like.new_ones(1, s.n_kv_head, 1, s.head_dim)

    def cat() -> list[torch.Tensor]:
        return [torch.cat([old, new], dim=2) for old in olds]

    def preallocated() -> list[torch.Tensor]:
        for room in rooms:
            room[:, :, position - 1 : position] = new
        return [room[:, :, :position] for room in rooms]

    arms = {
        "cat": lambda: timing.timed(cat, wait)[0],
        "preallocated": lambda: timing.timed(preallocated, wait)[0],
    }
    return in_turn(arms, effort), sum(t.nbytes for t in cat())


def batches(
    subject: Subject, text: torch.Tensor, position: int, sizes: Sequence[int], effort: Effort
) -> dict[int, Estimate]:
    """Seconds of a cached step for so many texts at once."""
    chains = {str(B): Chain(subject, text.expand(B, -1), position) for B in sizes}
    found = in_turn({name: chain.step for name, chain in chains.items()}, effort)
    return {int(name): seconds for name, seconds in found.items()}


@torch.no_grad()
def text_without_cache(
    subject: Subject, tokens: torch.Tensor, prompt: int
) -> tuple[torch.Tensor, list[float]]:
    """What greedy decoding without a cache writes after each beginning of `tokens`, all in one call.

    The two texts first differ where two greedy texts of their own would. Also the gap of the two best logits
    before each new token: where it is nearly nothing, either token is right.
    """
    logits = subject.uncached(tokens[:, :-1])[:, prompt - 1 :]  # (1, new, V): scores of each new token
    best = logits.float().topk(2, dim=-1).values
    gaps: list[float] = (best[..., 0] - best[..., 1])[0].tolist()
    return torch.cat([tokens[:, :prompt], logits.argmax(dim=-1)], dim=1), gaps


def integrated(points: Sequence[tuple[int, float]], first: int, last: int) -> float:
    """The sum of y over first … last, along straight lines between points (the trapezoid rule).

    Beyond the outermost points the nearest line goes on. Raises ValueError for no points.
    """
    if not points:
        raise ValueError("no points to integrate")
    points = sorted(points)
    if len(points) == 1:
        return points[0][1] * (last - first + 1)
    total = 0.0
    for x in range(first, last + 1):
        right = next((i for i in range(1, len(points)) if x <= points[i][0]), len(points) - 1)
        (x0, y0), (x1, y1) = points[right - 1], points[right]
        total += y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return total


def latency_rows(named: Row, position: int, found: Mapping[str, Estimate]) -> tuple[Row, ...]:
    """Rows of the table `latency`, in milliseconds."""
    return tuple(
        {
            **named,
            "mode": mode,
            "position": position,
            "ms_median": ms(e.value),
            "ms_low": ms(e.low),
            "ms_high": ms(e.high),
            "samples": e.samples,
        }
        for mode, e in found.items()
    )


def ms(seconds: float) -> float:
    """Milliseconds, to the microsecond's tenth."""
    return round(seconds * 1e3, 4)


def clocks(
    timed_steps: Callable[..., list[float]], arm: Arm, device: torch.device, steps: int
) -> tuple[float, float]:
    """The median seconds of the same steps by the student's `timed_steps` and by the grader's clock."""
    ours: list[float] = []
    theirs = timed_steps(lambda: ours.append(arm()), steps, device)
    return statistics.median(theirs), statistics.median(ours)
