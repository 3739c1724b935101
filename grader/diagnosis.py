"""Name the known bug whose output the student's equals; where none does, or several kinds, say nothing.

The evidence is what the failing check's own frames hold: the student's checked module with every call made to
it, the probe with every call that it got, the cache that was counted. Nothing is asked of the student's
process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from grader import expect, known_bugs
from grader.known_bugs import Bug
from grader.probe import Probe

MAX_SEARCHES = 6
MAX_CALLS = 24  # enough for any check's chain of pieces; a longer one is cut
SAME = expect.FLOAT64


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A known bug that explains what was seen: its name, its kind, and a sentence for the student."""

    name: str
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Run:
    """One text's pieces as they were fed, and what came out for each."""

    pieces: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class Doctor:
    """Explain the failed checks of one submission's stage.

    After MAX_SEARCHES through the whole library only the bugs that were found before are tried, so that a
    submission with one fault in every check is not searched forty times.
    """

    def __init__(self) -> None:
        self.searches = 0
        self.suspects: dict[str, Bug] = {}
        self.counts: list[tuple[Any, int]] = []

    def diagnose(self, error: BaseException) -> Diagnosis | None:
        """Explain a failed check, if exactly one kind of known bug does."""
        evidence = _evidence(error.__traceback__)
        every = self.searches < MAX_SEARCHES
        self.searches += 1
        found = _explain_module(evidence, known_bugs.BUGS if every else tuple(self.suspects.values()))
        if found is not None:
            self.suspects |= {bug.name: bug for bug in known_bugs.BUGS if bug.name == found.name}
        return found or _explain_loop(evidence) or self._explain_bytes(evidence)

    def _explain_bytes(self, evidence: dict[str, Any]) -> Diagnosis | None:
        """Recognise a wrong count of a cache's bytes: by its value, and by every wrong one before it."""
        past, value, want = (evidence.get(name) for name in ("past", "value", "want"))
        if type(value) is not int or type(want) is not int or not isinstance(past, list | tuple):
            return None
        try:
            if value == want or want != sum(t.nbytes for t in _tensors(past)):  # right, or of another cache
                return None
            self.counts.append((past, value))
            found = [entry for entry in COUNTS if all(entry[2](p) == got for p, got in self.counts)]
        except (TypeError, ValueError, AttributeError, IndexError):
            return None
        if len(found) != 1:
            return None
        name, words, _ = found[0]
        return Diagnosis(name, "what is counted", f"your number is that of a cache_bytes that {words}")


def _evidence(trace: TracebackType | None) -> dict[str, Any]:
    """The values that the frames from the test down to the failure hold, by name; the innermost wins."""
    values: dict[str, Any] = {}
    inside = False
    while trace is not None:
        code = trace.tb_frame.f_code
        inside = inside or PurePath(code.co_filename).name.startswith("test_")
        if inside:
            values |= trace.tb_frame.f_locals
        trace = trace.tb_next
    return values


# Stage 1: outputs of a module


def _explain_module(evidence: dict[str, Any], suspects: Sequence[Bug]) -> Diagnosis | None:
    """Compare a module's outputs with those of every suspect, on the texts that it was fed."""
    for module in evidence.values():
        if not isinstance(module, expect.Checked) or module.dtype is not torch.float64 or module.like is None:
            continue
        wrong = [run for run in _runs(module) if not _fits(module, run, known_bugs.RIGHT)]
        if wrong:
            shortest = min(
                (_up_to_the_first_wrong(module, run) for run in wrong), key=lambda r: len(r.pieces)
            )
            found = [bug for bug in suspects if _fits(module, shortest, bug)]
            found = [bug for bug in found if all(_fits(module, run, bug) for run in _runs(module))]
            return _only(
                found, f"your {'logits' if module.name == 'GPT' else 'outputs'} are those of a model"
            )
    return None


def _runs(module: expect.Checked) -> list[Run]:
    """The texts that a module was fed piece by piece, as long as they got, from no stranger's past."""
    open_ends: dict[int, Run] = {}
    for fed, past, out, present in module.calls[:MAX_CALLS]:
        before = Run((), ()) if past is None else open_ends.get(id(past))
        if before is not None:
            open_ends[id(present)] = Run((*before.pieces, fed), (*before.outputs, out))
    longer = {id(run.pieces[-2]) for run in open_ends.values() if len(run.pieces) > 1}
    return [run for run in open_ends.values() if id(run.pieces[-1]) not in longer]


def _up_to_the_first_wrong(module: expect.Checked, run: Run) -> Run:
    """The pieces that it takes to tell the bugs apart quickly: those up to the first with a wrong output."""
    right = known_bugs.outputs(module.like, module.cfg, list(run.pieces), known_bugs.RIGHT)
    end = 1 + next(n for n, pair in enumerate(zip(run.outputs, right, strict=True)) if not _is_same(*pair))
    return Run(run.pieces[:end], run.outputs[:end])


def _fits(module: expect.Checked, run: Run, bug: Bug) -> bool:
    """Whether the bug explains every output of a run."""
    said = known_bugs.outputs(module.like, module.cfg, list(run.pieces), bug)
    return all(map(_is_same, run.outputs, said))


def _is_same(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or not bool(torch.isfinite(a).all()):
        return False
    return bool((a.detach() - b).abs().max() <= SAME * b.abs().max())


def _only(found: list[Bug], what: str) -> Diagnosis | None:
    """One bug: its own words. Several of one kind: what they have in common. Else nothing."""
    if len(found) == 1:
        return Diagnosis(found[0].name, found[0].kind, f"{what} {found[0].words}")
    if found and len({bug.kind for bug in found}) == 1:
        return Diagnosis(found[0].kind, found[0].kind, f"{what} that has one thing wrong: {found[0].kind}")
    return None


# Stage 2: how the loop called the probe


@dataclass(frozen=True, slots=True)
class Loop:
    """What is known of one run of a loop: the prompt (B, P), the tokens that came back, the calls made."""

    idx: Tensor
    tokens: Tensor
    probe: Probe

    @property
    def new(self) -> Tensor:
        return self.tokens[:, self.idx.shape[1] :]

    def logits(self) -> list[Tensor]:
        """What the model said in every call, (B, T, V) each."""
        with torch.no_grad():
            return [
                self.probe.brain(torch.cat([c.past, c.fed], 1))[:, c.past.shape[1] :]
                for c in self.probe.calls
            ]


def _grows(lengths: list[int]) -> bool:
    return len(lengths) > 1 and all(b == a + 1 for a, b in itertools.pairwise(lengths))


def _no_past(loop: Loop) -> bool:
    return all(c.past.shape[1] == 0 for c in loop.probe.calls)


def _past_stays(loop: Loop) -> bool:
    lengths = [c.past.shape[1] for c in loop.probe.calls[1:]]
    return len(lengths) > 1 and lengths[0] > 0 and len(set(lengths)) == 1


def _last_twice(loop: Loop) -> bool:
    calls, P = loop.probe.calls, loop.idx.shape[1]
    return (
        len(calls) > 1
        and calls[0].fed.shape[1] == P
        and calls[1].past.shape[1] == P
        and torch.equal(calls[1].fed, loop.idx[:, -1:])
        and calls[1].fed.shape[1] == 1
    )


def _picked_from(pick: Callable[[Tensor], Tensor]) -> Callable[[Loop], bool]:
    """Whether the new tokens are what `pick` makes of the logits, and not what the right choice makes."""

    def matches(loop: Loop) -> bool:
        B, n = loop.new.shape
        said = [logits for logits in loop.logits() if logits.shape[0] == B][-n:] if n else []
        if len(said) < n or not n:
            return False
        right = torch.stack([x[:, -1].argmax(-1) for x in said], 1)
        try:
            picked = torch.stack([pick(x).expand(B) for x in said], 1)
        except (RuntimeError, IndexError):
            return False
        return torch.equal(picked, loop.new) and not torch.equal(right, loop.new)

    return matches


LOOPS: tuple[tuple[str, str, str, Callable[[Loop], bool]], ...] = (
    (
        "loop-refeeds",
        "what each step feeds",
        "your loop feeds the whole text in every step and no past: that is the uncached loop",
        lambda x: _grows(x.probe.fed) and _no_past(x),
    ),
    (
        "loop-refeeds-on-the-past",
        "what each step feeds",
        "your loop hands over the past and yet feeds the whole text again, so the model sees it twice",
        lambda x: _grows(x.probe.fed) and not _no_past(x),
    ),
    (
        "loop-forgets-the-past",
        "the past between the steps",
        "your loop feeds one token a step but never hands the past on: the model sees a text of one token",
        lambda x: len(x.probe.fed) > 1 and set(x.probe.fed[1:]) == {1} and x.probe.fed[0] > 1 and _no_past(x),
    ),
    (
        "loop-keeps-the-first-past",
        "the past between the steps",
        "your loop hands the prompt's past to every step: take the past that the last call gave back",
        lambda x: set(x.probe.fed[1:]) == {1} and _past_stays(x),
    ),
    (
        "loop-feeds-the-prompts-last-token-twice",
        "what each step feeds",
        "your loop feeds the prompt's last token a second time, after the whole prompt: feed the new token",
        _last_twice,
    ),
    (
        "loop-prompt-token-by-token",
        "the prompt's call",
        "your loop feeds the prompt one token at a time: the first call can take all of it",
        lambda x: set(x.probe.fed) == {1} and len(x.probe.fed) > 2 and x.probe.seen >= x.idx.shape[1] > 2,
    ),
    (
        "loop-first-position",
        "the choice of the token",
        "your loop takes the logits of a call's first position, not its last",
        _picked_from(lambda x: x[:, 0].argmax(-1)),
    ),
    (
        "loop-first-row",
        "the choice of the token",
        "your loop gives every row of the batch the first row's token",
        _picked_from(lambda x: x[:1, -1].argmax(-1)),
    ),
    (
        "loop-least-likely",
        "the choice of the token",
        "your loop picks the smallest logit",
        _picked_from(lambda x: x[:, -1].argmin(-1)),
    ),
    (
        "loop-highest-of-ties",
        "ties",
        "your loop picks the highest id where several logits are equal: the lowest is asked for",
        _picked_from(lambda x: x.shape[-1] - 1 - x[:, -1].flip(-1).argmax(-1)),
    ),
)


def _explain_loop(evidence: dict[str, Any]) -> Diagnosis | None:
    """Recognise a loop by its calls, or by how its tokens follow from what the model said."""
    probes = [v for v in evidence.values() if isinstance(v, Probe)]
    idx, tokens = evidence.get("idx"), evidence.get("tokens")
    if len(probes) != 1 or not isinstance(idx, Tensor) or not probes[0].calls:
        return None
    if not isinstance(tokens, Tensor) or tokens.dim() != 2 or tokens.dtype is not torch.int64:
        tokens = idx
    loop = Loop(idx, tokens, probes[0])
    found = [entry for entry in LOOPS if entry[3](loop)]
    return Diagnosis(*found[0][:3]) if len(found) == 1 else None


# Stage 4: a count of bytes


def _tensors(past: Any) -> list[Tensor]:
    return [t for pair in past for t in tuple(pair)[:2]]


def _unique_storage(past: Any) -> int:
    return sum(
        {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in _tensors(past)}.values()
    )


COUNTS: tuple[tuple[str, str, Callable[[Any], float]], ...] = (
    ("bytes-elements", "counts numbers, not bytes", lambda p: sum(t.numel() for t in _tensors(p))),
    ("bytes-keys-only", "counts the keys and not the values", lambda p: sum(k.nbytes for k, _ in p)),
    ("bytes-values-only", "counts the values and not the keys", lambda p: sum(v.nbytes for _, v in p)),
    (
        "bytes-keys-twice",
        "counts the keys twice, as if values were as large",
        lambda p: 2 * sum(k.nbytes for k, _ in p),
    ),
    ("bytes-first-layer", "counts the first layer only", lambda p: sum(t.nbytes for t in _tensors(p[:1]))),
    (
        "bytes-equal-layers",
        "takes every layer to be as large as the first",
        lambda p: len(p) * sum(t.nbytes for t in _tensors(p[:1])),
    ),
    (
        "bytes-first-dtype",
        "takes every number to be as wide as the first",
        lambda p: p[0][0].element_size() * sum(t.numel() for t in _tensors(p)),
    ),
    ("bytes-four", "takes every number to have 4 bytes", lambda p: 4 * sum(t.numel() for t in _tensors(p))),
    ("bytes-storage", "counts the storage behind a view, not the view", _unique_storage),
    (
        "bytes-every-storage",
        "counts the whole storage behind each view",
        lambda p: sum(t.untyped_storage().nbytes() for t in _tensors(p)),
    ),
    ("bytes-bits", "counts bits, not bytes", lambda p: 8 * sum(t.nbytes for t in _tensors(p))),
    ("bytes-one-row", "leaves out the batch", lambda p: sum(t[:1].nbytes for t in _tensors(p))),
)
