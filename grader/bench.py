"""The bench: a model, a text and an effort; each of its measurements makes one record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from grader import decoding, timing
from grader.decoding import Effort, ms
from grader.records import Measurements, Record, Row, Settings
from grader.subject import SEED, Subject

POSITIONS = (1, 100, 250, 500, 1000)
CONTEXTS = (64, 128, 256, 512, 1024)
BATCHES = (1, 4, 16)
NEAR = 0.05  # of a position: so near, steps take the same
BATCH_AT = 128  # positions in each text of a batch
CLOCKED = 20
PROMPT_TEXT = b"Good morrow,"  # twelve bytes, as the lesson's prompt has twelve tokens
BYTE_TOKENS = 256
WHOLE_S, WHOLE_QUICK_S = 30.0, 3.0  # decoding without a cache that takes longer is sampled


@dataclass(frozen=True, slots=True)
class Task:
    """One measurement still to be done: what to say meanwhile, and about how long it takes beside others."""

    name: str
    says: str
    weight: float
    do: Callable[[Measurements], Record]


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the measurements of one run are made."""

    subject: Subject
    settings: Settings
    effort: Effort
    text: torch.Tensor  # (1, context) token ids that begin with the prompt

    @property
    def sizes(self) -> tuple[int, ...]:
        """The positions at which steps are measured: those that fit, and the last one unless it is near."""
        fitting = {p for p in POSITIONS if p <= self.subject.shape.context}
        near = any(abs(p - self.last) <= NEAR * self.last for p in fitting)
        return tuple(sorted(fitting if near else fitting | {self.last}))

    @property
    def last(self) -> int:
        """How many positions the last step of the whole text has."""
        return self.settings.prompt + self.settings.n_new - 1

    def tasks(self) -> list[Task]:
        """What can be measured with any model."""
        found = [Task("memory", "the cache's bytes", 5000, lambda so_far: self.memory())]
        for p in self.sizes:
            found.append(
                Task(f"latency {p}", f"a step at position {p:,}", 2000 + 10 * p, _of(self.latency, p))
            )
        write = 10.0 * self.settings.n_new
        found.append(Task("cached", "the whole text, with the cache", write, lambda so_far: self.cached()))
        found.append(Task("uncached", "the whole text, without a cache", 3 * write, self.uncached))
        return found

    def lesson(self) -> list[Task]:
        """What is measured beside that of a student's model: arithmetic, copying, batches."""
        context, quick = self.subject.shape.context, self.settings.quick
        found = []
        for n in CONTEXTS[:: 2 if quick else 1]:
            if n <= context:
                found.append(
                    Task(f"work {n}", f"arithmetic at {n:,} positions", 2000 + 10 * n, _of(self.work, n))
                )
        for p in self.sizes[:: 3 if quick else 1]:
            found.append(Task(f"cat {p}", f"copying at position {p:,}", 2000, _of(self.cat, p)))
        found.append(Task("batch", "sixteen texts at once", 4000, lambda so_far: self.batch()))
        return found

    def latency(self, position: int) -> Record:
        s = self.settings
        found = decoding.latency(self.subject, self.text, position, self.effort)
        named: Row = {"model": s.model, "device": s.device, "dtype": s.dtype}
        return Record(f"latency {position}", {"latency": decoding.latency_rows(named, position, found)})

    def memory(self) -> Record:
        rows = decoding.memory(self.subject, self.text, sorted({*self.sizes, self.last}))
        return Record("memory", {"memory": tuple({**self._named(), **row} for row in rows)})

    def cached(self) -> Record:
        """Write the whole text with the cache; hold it against what the model says without."""
        s, subject = self.settings, self.subject
        seconds, (tokens, past) = timing.timed(
            lambda: subject.write(self.prompt, s.n_new, cached=True), decoding.waiter(subject.device)
        )
        held: Row = {"positions": subject.positions(past), "cache_bytes": subject.cache_bytes(past)}
        row = self._total("cached", seconds, sampled=False)
        return Record("cached", {"total": (row,)}, {**held, **self._compared(tokens)})

    def uncached(self, so_far: Measurements) -> Record:
        """Write the whole text without a cache, or add its steps up where that would take long."""
        s = self.settings
        points = [
            (int(row["position"] or 0), float(row["ms_median"] or 0) / 1e3)
            for row in so_far.table("latency")
            if row["mode"] == "uncached"
        ]
        seconds = decoding.integrated(points, s.prompt, s.prompt + s.n_new - 1)
        sampled = seconds > (WHOLE_QUICK_S if s.quick else WHOLE_S)
        figures: Row = {"integrated_s": round(seconds, 4)}
        if not sampled:
            seconds, _ = timing.timed(
                lambda: self.subject.write(self.prompt, s.n_new, cached=False),
                decoding.waiter(self.subject.device),
            )
        return Record("uncached", {"total": (self._total("uncached", seconds, sampled=sampled),)}, figures)

    def work(self, context: int) -> Record:
        flops = decoding.work(self.subject, self.text, context)
        found = decoding.latency(self.subject, self.text, context, self.effort)
        row: Row = {"model": self.settings.model, "context": context}
        row |= {f"flops_{mode}": flops[mode] for mode in ("cached", "uncached")}
        row |= {f"s_{mode}": round(found[mode].value, 7) for mode in ("cached", "uncached")}
        formula = decoding.formula_flops
        figures: Row = {
            "formula_cached": formula(self.subject.shape, 1, context),
            "formula_uncached": formula(self.subject.shape, context, context),
        }
        return Record(f"work {context}", {"work": (row,)}, figures)

    def cat(self, position: int) -> Record:
        found, copied = decoding.copying(self.subject, position, self.effort)
        row: Row = {"position": position, "ms_cat": ms(found["cat"].value)}
        row |= {"ms_preallocated": ms(found["preallocated"].value), "bytes": copied}
        return Record(f"cat {position}", {"cat": (row,)})

    def batch(self) -> Record:
        sizes = (BATCHES[0], BATCHES[-1]) if self.settings.quick else BATCHES
        at = min(BATCH_AT, self.subject.shape.context // 2)
        found = decoding.batches(self.subject, self.text, at, sizes, self.effort)
        rows: tuple[Row, ...] = tuple(
            {"batch": B, "ms_step": ms(e.value), "tokens_per_s": round(B / e.value, 2)}
            for B, e in found.items()
        )
        return Record("batch", {"batch": rows}, {"position": at})

    @torch.no_grad()
    def clocks(self, timed_steps: Callable[..., list[float]]) -> Record:
        """Time the same steps by the student's clock and by the grader's."""
        chain = decoding.Chain(self.subject, self.text, min(BATCH_AT, self.subject.shape.context // 2))
        chain.step()
        theirs, ours = decoding.clocks(timed_steps, chain.step, self.subject.device, CLOCKED)
        return Record("clocks", {}, {"ms_by_stage3": ms(theirs), "ms_by_the_grader": ms(ours)})

    @property
    def prompt(self) -> torch.Tensor:
        return self.text[:, : self.settings.prompt]

    def _named(self) -> Row:
        return {"model": self.settings.model, "dtype": self.settings.dtype}

    def _total(self, mode: str, seconds: float, *, sampled: bool) -> Row:
        named: Row = {"model": self.settings.model, "mode": mode, "n_new": self.settings.n_new}
        return {**named, "seconds": round(seconds, 4), "sampled": "yes" if sampled else "no"}

    def _compared(self, tokens: torch.Tensor) -> Row:
        """Whether the text is the one that is written without a cache, and how close a call it was if not."""
        other, gaps = decoding.text_without_cache(self.subject, tokens, self.settings.prompt)
        column = self.subject.first_mismatch(tokens, other)
        if column is None:
            return {"first_mismatch": None, "gap": None}
        return {"first_mismatch": column - self.settings.prompt, "gap": gaps[column - self.settings.prompt]}


def sample_text(context: int, vocab_size: int, prompt: int, device: torch.device) -> torch.Tensor:
    """A text (1, context) that begins with a prompt, English where tokens are bytes; the rest is drawn."""
    draw = torch.Generator().manual_seed(SEED)
    text = torch.randint(vocab_size, (1, context), generator=draw)
    if vocab_size == BYTE_TOKENS:
        text[0, :prompt] = torch.tensor(list(PROMPT_TEXT[:prompt]))
    return text.to(device)


def carried_out(
    tasks: Sequence[Task], found: Measurements, starting: Callable[[Task], Any]
) -> Iterator[Measurements]:
    """Do what is not done yet, task by task; gives the measurements so far after each."""
    for task in tasks:
        if found.record(task.name) is None:
            starting(task)
            begun = time.perf_counter()
            record = task.do(found)
            seconds = round(time.perf_counter() - begun, 3)
            record = Record(task.name, record.rows, record.figures, seconds)
            found = _with(found, record)
            yield found


def _with(found: Measurements, record: Record) -> Measurements:
    import msgspec

    return msgspec.structs.replace(found, records=(*found.records, record))


def _of(measure: Callable[[int], Record], size: int) -> Callable[[Measurements], Record]:
    return lambda so_far: measure(size)
