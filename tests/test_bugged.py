"""The bugged models that stages 5 to 9 are held against are bugged in just the ways they say."""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from grader import bugged, claims, probe, twofaced
from grader.bugged import BUGS, RIGHT, Cached, Rules
from grader.twofaced import Tie

COURSE = Path(__file__).resolve().parent.parent
PIECES = ((11,), (1,) * 11, (5, 1, 3, 2), (4, 7))
CUTS = pytest.mark.parametrize("pieces", PIECES, ids=str)
SEEDS = pytest.mark.parametrize("seed", range(3))


@pytest.fixture(scope="module")
def oracle() -> Iterator[ModuleType]:
    """Import the given model, and leave no trace of it."""
    before, threads = sys.modules.get("gpt2"), torch.get_num_threads()
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("gpt2", COURSE / "exercises" / "gpt2.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules["gpt2"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["gpt2"])
    yield sys.modules.pop("gpt2")
    torch.set_num_threads(threads)
    if before is not None:
        sys.modules["gpt2"] = before


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.fixture
def weights(oracle: ModuleType, rng: torch.Generator) -> Any:
    cfg = oracle.Config(n_layer=3, n_head=2, n_embd=14, block_size=13, vocab_size=31)
    return probe.hot(oracle.GPT(cfg), rng)


@pytest.fixture
def idx(weights: Any, rng: torch.Generator) -> torch.Tensor:
    return probe.ids(rng, weights.cfg, 2, 11)


def fed(model: Any, idx: torch.Tensor, pieces: tuple[int, ...]) -> tuple[torch.Tensor, Any]:
    outs, past = [], None
    for piece in idx.split(pieces, dim=1):
        logits, past = model(piece, past)
        outs.append(logits)
    return torch.cat(outs, dim=1), past


def near(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool((a - b).abs().max() <= 1e-12 * b.abs().max())


# Recomputed, and with a real cache: two ways to one answer


def test_recomputed_by_the_default_rules_is_the_oracle(weights: Any, idx: torch.Tensor) -> None:
    logits, layers = bugged.recomputed(weights, idx)
    want, pairs = probe.remembered(weights, idx)
    assert near(logits, want)
    assert all(near(a.k, k) and near(a.v, v) for a, (k, v) in zip(layers, pairs, strict=True))


@CUTS
@pytest.mark.parametrize("name", ["ok", "position", "no-mask", "square-mask"])
def test_a_cache_by_rules_says_what_is_recomputed(
    weights: Any, idx: torch.Tensor, name: str, pieces: tuple[int, ...]
) -> None:
    rules = BUGS.get(name, RIGHT)
    logits, presents = fed(Cached(weights, rules), idx, pieces)
    positions = bugged.restarting(pieces) if name == "position" else None
    want, layers = bugged.recomputed(weights, idx, positions, bugged.in_calls(rules.sees, pieces))
    assert near(logits, want)
    assert all(near(k, a.k) and near(v, a.v) for (k, v), a in zip(presents, layers, strict=True))


@pytest.mark.parametrize(
    ("name", "pieces"), [("position", (5, 6)), ("no-mask", (11,)), ("square-mask", (4, 7))]
)
def test_a_bug_is_no_right_model(weights: Any, idx: torch.Tensor, name: str, pieces: tuple[int, ...]) -> None:
    logits, _ = fed(Cached(weights, BUGS[name]), idx, pieces)
    want = weights(idx)
    assert (logits - want).abs().max() > 0.05 * want.abs().max()


def test_square_mask_is_right_token_by_token(weights: Any, idx: torch.Tensor) -> None:
    assert near(fed(Cached(weights, BUGS["square-mask"]), idx, (8, 1, 1, 1))[0], weights(idx))


def test_stale_cache_uses_what_is_new_and_does_not_keep_it(weights: Any, idx: torch.Tensor) -> None:
    model = Cached(weights, BUGS["stale-cache"])
    logits, past = fed(model, idx[:, :7], (6, 1))
    assert near(logits, weights(idx[:, :7]))
    assert [k.shape[2] for k, _ in past] == [6, 6, 6]
    assert not near(model(idx[:, 7:8], past)[0], weights(idx[:, :8])[:, 7:])


def test_remembering_model_goes_on_from_its_last_call(weights: Any, idx: torch.Tensor) -> None:
    model = bugged.Remembering(weights)
    assert near(fed(model, idx, (5, 1, 5))[0], weights(idx))
    _, past = model(idx[:, :5])
    model(idx[:, 5:6], past)
    assert not near(model(idx[:, 5:6], past)[0], weights(idx[:, :6])[:, 5:])


def test_views_into_a_buffer_hold_the_same_numbers(weights: Any, idx: torch.Tensor) -> None:
    model = Cached(weights, Rules(form=bugged.in_a_buffer))
    logits, presents = fed(model, idx, (5, 1, 5))
    assert near(logits, weights(idx))
    assert not any(t.is_contiguous() for pair in presents for t in pair)


def test_rounding_is_there_on_a_past_alone(weights: Any, idx: torch.Tensor, rng: torch.Generator) -> None:
    model = Cached(weights, Rules(says=bugged.noisy(rng, weights.cfg, 1e-6)))
    want = weights(idx)
    assert torch.equal(fed(model, idx, (11,))[0], fed(Cached(weights), idx, (11,))[0])
    off = (fed(model, idx, (5, 6))[0] - want).abs().max() / want.abs().max()
    assert 1e-8 < off < 2e-6


def test_a_cold_model_says_one_token_over_and_over(oracle: ModuleType, rng: torch.Generator) -> None:
    cfg = oracle.Config(n_layer=2, n_head=2, n_embd=32, block_size=14, vocab_size=31)
    model = bugged.cold(probe.hot(oracle.GPT(cfg), rng))
    told = oracle.generate_nocache(model, torch.tensor([[3]]), 10)
    assert len(set(told[0].tolist())) <= 2


def test_a_shortened_model_is_the_long_one_up_to_there(
    oracle: ModuleType, weights: Any, idx: torch.Tensor
) -> None:
    short = bugged.shortened(oracle, weights.float(), 5)
    assert near(short(idx[:, :5]), weights(idx[:, :5]))
    with pytest.raises(ValueError, match="`6` positions"):
        short(idx[:, :6])


@pytest.mark.parametrize("seed", range(7))
def test_the_largest_difference_hides(oracle: ModuleType, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    cfg = oracle.Config(n_layer=1, n_head=2, n_embd=10, block_size=9, vocab_size=17)
    model = probe.hot(oracle.GPT(cfg), rng)

    def difference(idx: torch.Tensor) -> torch.Tensor:
        return fed(Cached(model, BUGS["square-mask"]), idx, (5, 3))[0] - model(idx)

    idx, gap = bugged.telling(model, rng, (3, 8), difference)
    off = difference(idx)
    assert float(-off.min()) == pytest.approx(gap)
    assert float(off[0].abs().max()) < gap
    assert float(off[:, -1].abs().max()) < gap


# Whatever a student calls them with


GARBAGE: list[Any] = [
    None, 0, -1, True, 3.5, "past", [], [[]], {}, torch.tensor(1.0), torch.zeros(2, 3), 
    torch.full((1, 2), 99),
    torch.zeros(1, 0, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.int64), [(1, 2)] * 3, [None] * 3,
    [(torch.zeros(1, 2, 4, 7), torch.zeros(1, 2, 4, 7))] * 3, [torch.zeros(2, 2, 2, 4, 7)] * 3,
    [(torch.zeros(2, 2, 4, 7, dtype=torch.float64), torch.zeros(2, 2, 5, 7, dtype=torch.float64))] * 3,
    [(torch.full((2, 2, 4, 7), math.nan, dtype=torch.float64),) * 2] * 3, [(torch.zeros(0),) * 2] * 3,
    2**70, float("nan"), (1, 2, 3), ("ok", 1.0, 0.0), (1, 0.5, math.inf), (None, None, None), object(),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["cached", "two-faced", "remembering"])
def test_garbage_raises_what_travels_to_a_student(weights: Any, rng: torch.Generator, kind: str) -> None:
    models = {
        "cached": Cached(weights),
        "remembering": bugged.Remembering(weights),
        "two-faced": twofaced.TwoFaced(weights, weights.cfg, rng, bugged.unchanged),
    }
    for fed, past in itertools.product(GARBAGE, GARBAGE):
        try:
            models[kind](fed, past)
        except (ValueError, TypeError, IndexError, RuntimeError):
            continue


# Two faces


@SEEDS
@pytest.mark.parametrize(("flips", "want"), [([(0, 3)], 3), ([(1, 5), (0, 2)], 2), ([], None)])
def test_texts_part_where_they_are_made_to(
    oracle: ModuleType, seed: int, flips: list[tuple[int, int]], want: int | None
) -> None:
    model, prompt = twofaced.flipping(oracle, torch.Generator().manual_seed(seed), (2, 4, 7), flips)
    assert twofaced.bad_steps(model, prompt, 7) == [want]
    said, uncached = twofaced.spoken(model, prompt, 7), twofaced.spoken_uncached(model, prompt, 7)
    assert not torch.equal(said[1], uncached[1])  # a little off everywhere else


@SEEDS
@pytest.mark.parametrize("gap", [0, 1, 7])
@pytest.mark.parametrize("step", [1, 4, 8])
def test_near_ties_lie_where_they_are_made(oracle: ModuleType, seed: int, step: int, gap: int) -> None:
    tie = Tie(step, gap, spikes=(0.05, 0.1, 3.0))
    model, prompt = twofaced.bf16_model(oracle, torch.Generator().manual_seed(seed), 5, 9, tie)
    truth = twofaced.truth(model, prompt, 9)
    cached, uncached = twofaced.spoken(model, prompt, 9), twofaced.spoken_uncached(model, prompt, 9)
    assert cached.dtype == torch.bfloat16
    assert truth.first_mismatch == step
    assert truth.top2_gap is not None
    best, second = (float(logit) for logit in cached[step, 0].topk(2).values)
    assert abs((best - second) - truth.top2_gap) > 2 * claims.BFLOAT16_DIFFERENCE * truth.top2_gap
    size = float(uncached.abs().max())
    if step < 8:
        assert float((cached - uncached).abs().max()) > 1.2 * truth.max_logit_diff
    assert 0.05 * float(uncached[: step + 1].abs().amax(-1).min()) < truth.max_logit_diff < 0.5 * size


@SEEDS
@pytest.mark.parametrize(("calm", "silent"), [(twofaced.CALM, False), (0.0, True)])
def test_texts_without_a_tie_never_part(oracle: ModuleType, seed: int, calm: float, silent: bool) -> None:
    tie = Tie(None, spikes=(0, 0, 0), calm=calm)
    model, prompt = twofaced.bf16_model(oracle, torch.Generator().manual_seed(seed), 3, 9, tie)
    truth = twofaced.truth(model, prompt, 9)
    assert (truth.first_mismatch, truth.top2_gap) == (None, None)
    assert (truth.max_logit_diff == 0) == silent


@SEEDS
def test_positions_from_0_lead_astray_early(oracle: ModuleType, seed: int) -> None:
    story = twofaced.early_story(oracle, torch.Generator().manual_seed(seed), 5, 8)
    cached = Cached(story.model, BUGS["position"])
    assert torch.equal(oracle.generate_nocache(story.model, story.idx, 8), story.right)
    assert near(twofaced.spoken(cached, story.idx, 8).transpose(0, 1), story.said())
    assert torch.equal(story.said().argmax(-1), story.wrong[:, 5:])
    assert twofaced.bad_steps(cached, story.idx, 8) == [story.step]
    assert 2 <= story.step <= twofaced.EARLY_STEPS


# What is handed back


@pytest.mark.parametrize("value", GARBAGE, ids=lambda value: repr(value).partition(" at 0x")[0][:40])
def test_garbage_fails_a_check_and_breaks_none(oracle: ModuleType, rng: torch.Generator, value: Any) -> None:
    cfg = oracle.Config(n_layer=3, n_head=2, n_embd=14, block_size=13, vocab_size=31)
    hoarder = claims.Hoarder(lambda *args: value, cfg, torch.float64)
    checks = [
        lambda: claims.near(value, 12.25, "the ratio"),
        lambda: claims.step(value, [17], "first_bad_step"),
        lambda: claims.report(value, twofaced.Truth(3, 0.5, 0.25)),
        lambda: claims.diagnosis(value, ["ok"], "a right model"),
        lambda: hoarder(torch.zeros(2, 4, 14)),
    ]
    for check in checks:
        with pytest.raises(AssertionError):
            check()


@pytest.mark.parametrize(("value", "want"), [(2, 2.0), (2.0, 2.0), (2 + 1e-9, 2.0), (1e-12, 0.0), (0, 0.0)])
def test_a_float_may_be_an_int(value: float, want: float) -> None:
    claims.near(value, want, "the gap")


@pytest.mark.parametrize("value", [True, 3.0, torch.tensor(3)])
def test_a_step_is_an_int_and_nothing_else(value: Any) -> None:
    with pytest.raises(AssertionError, match="must be an int"):
        claims.step(value, [1, 3, None], "first_bad_step")


def test_what_is_not_broken_is_said_to_be_whole(weights: Any, idx: torch.Tensor) -> None:
    want, _ = bugged.recomputed(weights, idx, bugged.restarting((6, 5)))
    with pytest.raises(AssertionError, match="nothing is broken"):
        claims.broken(weights(idx), want, weights(idx), "logits", (6, 5))
    with pytest.raises(AssertionError, match="held against this bug's"):
        claims.broken(want * 1.01, want, weights(idx), "logits", (6, 5))
