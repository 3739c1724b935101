"""Diagnosis: the bug that is there is named, and where none of the library fits, nothing is said."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from grader import diagnosis, expect, known_bugs, probe
from grader.known_bugs import BUGS, Bug

PIECES = (5, 1, 4, 3)


@pytest.fixture
def cfg(oracle: ModuleType) -> Any:
    return oracle.Config(n_layer=2, n_head=3, n_embd=15, block_size=40, vocab_size=29)


class Played:
    """A student's module that says what the library says of a bug."""

    def __init__(self, like: torch.nn.Module, cfg: Any, bug: Bug, spoil: float = 0.0) -> None:
        self.like, self.cfg, self.bug, self.spoil = like, cfg, bug, spoil
        self.pieces: dict[int, list[torch.Tensor]] = {}

    def __call__(self, x: torch.Tensor, past: Any = None) -> Any:
        pieces = [*(self.pieces[id(past)] if past is not None else []), x]
        out = known_bugs.outputs(self.like, self.cfg, pieces, self.bug)[-1]
        S = sum(p.shape[1] for p in pieces)
        pair = tuple(torch.zeros(x.shape[0], self.cfg.n_head, S, 5, dtype=torch.float64) for _ in range(2))
        present: Any = [pair] * self.cfg.n_layer if hasattr(self.like, "wte") else pair
        self.pieces[id(present)] = pieces
        return out + self.spoil, present


def run_test_of(module: Any, like: torch.nn.Module, name: str, cfg: Any, x: torch.Tensor) -> AssertionError:
    """Fail as a check does; the frame that is looked into is that of this file."""
    gpt = expect.Checked(module, name, cfg, torch.float64, like)
    with pytest.raises(AssertionError) as caught:
        out, _ = gpt.in_chunks(x, PIECES)
        expect.close(out, like(x), "outputs")
    return caught.value


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_known_bug_is_recognised_as_itself_or_its_kind(
    bug: Bug, oracle: ModuleType, rng: torch.Generator, cfg: Any
) -> None:
    like = probe.hot(oracle.GPT(cfg), rng)
    error = run_test_of(Played(like, cfg, bug), like, "GPT", cfg, probe.ids(rng, cfg, 2, sum(PIECES)))
    found = diagnosis.Doctor().diagnose(error)
    assert found is not None
    assert found.kind == bug.kind
    assert found.name in (bug.name, bug.kind)
    assert found.words.startswith("your logits are those of a model ")


def test_attention_alone_is_diagnosed_too(oracle: ModuleType, rng: torch.Generator, cfg: Any) -> None:
    bug = next(b for b in BUGS if b.name == "cache-swapped")
    like = probe.hot(oracle.Attention(cfg), rng)
    x = probe.inputs(rng, cfg, 2, sum(PIECES))
    found = diagnosis.Doctor().diagnose(run_test_of(Played(like, cfg, bug), like, "Attention", cfg, x))
    assert found is not None
    assert found.name == "cache-swapped"
    assert found.words.startswith("your outputs are those of a model ")


def test_a_known_bug_with_anything_else_wrong_is_not_claimed(
    oracle: ModuleType, rng: torch.Generator, cfg: Any
) -> None:
    like = probe.hot(oracle.GPT(cfg), rng)
    played = Played(like, cfg, BUGS[0], spoil=1e-3)
    error = run_test_of(played, like, "GPT", cfg, probe.ids(rng, cfg, 2, sum(PIECES)))
    assert diagnosis.Doctor().diagnose(error) is None


def test_after_some_searches_only_earlier_findings_are_tried(
    oracle: ModuleType, rng: torch.Generator, cfg: Any
) -> None:
    like = probe.hot(oracle.GPT(cfg), rng)
    idx = probe.ids(rng, cfg, 2, sum(PIECES))
    first, other = (
        run_test_of(Played(like, cfg, bug), like, "GPT", cfg, idx) for bug in (BUGS[0], known_bugs.MASKS[0])
    )
    doctor = diagnosis.Doctor()
    for _ in range(diagnosis.MAX_SEARCHES):
        assert doctor.diagnose(first) is not None
    assert doctor.diagnose(first) is not None
    assert doctor.diagnose(other) is None


def test_library_is_large_and_its_words_differ() -> None:
    names = [bug.name for bug in BUGS] + [entry[0] for entry in (*diagnosis.LOOPS, *diagnosis.COUNTS)]
    assert len(set(names)) == len(names) >= 30
    assert len({bug.words for bug in BUGS}) == len(BUGS)


def past_of(
    *shapes: tuple[int, ...], dtype: torch.dtype = torch.float64
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [
        (torch.ones(2, 3, s[0], 5, dtype=dtype), torch.ones(2, 3, s[0], s[1], dtype=dtype)) for s in shapes
    ]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("bytes-elements", lambda p: sum(t.numel() for pair in p for t in pair)),
        ("bytes-keys-only", lambda p: sum(k.nbytes for k, _ in p)),
        ("bytes-first-layer", lambda p: sum(t.nbytes for t in p[0])),
        ("bytes-equal-layers", lambda p: len(p) * sum(t.nbytes for t in p[0])),
        ("bytes-bits", lambda p: 8 * sum(t.nbytes for pair in p for t in pair)),
        (None, lambda p: 17),
    ],
)
def test_wrong_counts_of_bytes_are_recognised_by_their_value(
    name: str | None, count: Callable[[Any], int]
) -> None:
    past = past_of((7, 4), (6, 5), (3, 2))
    with pytest.raises(AssertionError) as caught:
        expect.bytes_are(count(past), sum(t.nbytes for pair in past for t in pair), "a cache")
    found = diagnosis.Doctor().diagnose(caught.value)
    assert (found.name if found else None) == name


def forget(model: Any, idx: torch.Tensor, n_new: int) -> torch.Tensor:
    new, tokens = idx, idx
    for _ in range(n_new):
        logits, _ = model(new)
        new = logits[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, new], 1)
    return tokens


def refeed(model: Any, idx: torch.Tensor, n_new: int) -> torch.Tensor:
    for _ in range(n_new):
        logits, _ = model(idx)
        idx = torch.cat([idx, logits[:, -1].argmin(-1, keepdim=True)], 1)
    return idx


def twice(model: Any, idx: torch.Tensor, n_new: int) -> torch.Tensor:
    logits, past = model(idx)
    new = idx[:, -1:]
    for _ in range(n_new):
        logits, past = model(new, past)
        new = logits[:, -1].argmax(-1, keepdim=True)
        idx = torch.cat([idx, new], 1)
    return idx


@pytest.mark.parametrize(
    ("loop", "name"),
    [
        (forget, "loop-forgets-the-past"),
        (twice, "loop-feeds-the-prompts-last-token-twice"),
        (refeed, None),  # two faults at once, the whole text and the smallest logit: nothing is claimed
    ],
)
def test_loops_are_recognised_by_how_they_call(
    loop: Callable[..., torch.Tensor], name: str | None, oracle: ModuleType, rng: torch.Generator
) -> None:
    spy, idx, want = probe.story(oracle, rng, sizes=(2, 5, 4))
    tokens = loop(spy, idx, 4)
    with pytest.raises(AssertionError) as caught:
        expect.that(torch.equal(tokens, want) and name is None, "the tokens")
    found = diagnosis.Doctor().diagnose(caught.value)
    assert (found.name if found else None) == name


def test_nothing_to_look_at_is_no_diagnosis() -> None:
    student = SimpleNamespace(idx=None)
    with pytest.raises(AssertionError) as caught:
        expect.that(student.idx is not None, "no idx")
    assert diagnosis.Doctor().diagnose(caught.value) is None
