"""The solutions of stages 5 to 9 break, measure and name what the contract says, seen directly."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from grader import course as courses
from grader import samples

COURSE = courses.find(Path(__file__))
SIZES = {"n_layer": 3, "n_head": 5, "n_embd": 35, "block_size": 23, "vocab_size": 29}
TINY = {"n_layer": 1, "n_head": 1, "n_embd": 7, "block_size": 4, "vocab_size": 2}
FEW = {"n_layer": 2, "n_head": 3, "n_embd": 15, "block_size": 9, "vocab_size": 5}
DEEP = {"n_layer": 5, "n_head": 2, "n_embd": 14, "block_size": 70, "vocab_size": 61}
COURSE_FILES = ["gpt2", *(stage.name for stage in COURSE.stages)]
CORRECT = COURSE.root / samples.SAMPLES / "correct"
STAGE1 = "stage1_attention.py"
# Compiling it takes tens of seconds, and its sums are those of all others.
RIGHT_MODELS = sorted(p.parent.name for p in CORRECT.glob(f"*/{STAGE1}") if p.parent.name != "flex_attention")

Present = list[tuple[Tensor, Tensor]]
Forward = Callable[..., tuple[Tensor, Present]]


@pytest.fixture(scope="module")
def course() -> Iterator[Any]:
    """Import the given model and the solutions by their own names, and leave no trace of them."""
    before = {name: sys.modules.pop(name, None) for name in COURSE_FILES}
    folders = [str(COURSE.solutions), str(COURSE.exercises)]
    sys.path[:0] = folders
    try:
        names = [name for name in COURSE_FILES if (COURSE.solutions / f"{name}.py").is_file()]
        modules = {name.partition("_")[0]: importlib.import_module(name) for name in ["gpt2", *names]}
        yield SimpleNamespace(**modules)
    finally:
        for folder in folders:
            sys.path.remove(folder)
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def weighted(model: Any, seed: int = 11, std: float = 0.3, dtype: torch.dtype = torch.float64) -> Any:
    """Draw every parameter, layer norms' gains around 1; return the model in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    model = model.to(dtype).eval().requires_grad_(False)
    gains = {id(m.weight) for m in model.modules() if isinstance(m, nn.LayerNorm)}
    for p in model.parameters():
        p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64) * std + (id(p) in gains))
    return model


def build(course: Any, of: Any, sizes: dict[str, int] = SIZES, **drawn: Any) -> Any:
    return weighted(of(course.gpt2.Config(**sizes)), **drawn)


def with_attention(course: Any, attention: Any, sizes: dict[str, int] = SIZES, **drawn: Any) -> Any:
    """Build stage 1's GPT with another attention in every layer."""
    model = course.stage1.GPT(course.gpt2.Config(**sizes))
    for block in model.h:
        block.attn = attention(model.cfg)
    return weighted(model, **drawn)


def text(*shape: int, vocab_size: int = SIZES["vocab_size"]) -> Tensor:
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(3))


def feed(model: Forward, idx: Tensor, *sizes: int) -> tuple[Tensor, Present]:
    logits, past = [], None
    for piece in idx.split(sizes, dim=1):
        out, past = model(piece, past=past)
        logits.append(out)
    assert past is not None
    return torch.cat(logits, dim=1), past


def close(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= 1e-12 * b.abs().max())


# stage 5


def test_offset_bug_is_right_without_a_past(course: Any) -> None:
    bugged, right = (build(course, of) for of in (course.stage5.OffsetBugGPT, course.stage1.GPT))
    idx = text(2, 23)
    assert torch.equal(bugged(idx)[0], right(idx)[0])


def test_offset_bug_starts_every_call_at_0(course: Any) -> None:
    """A right model whose position table repeats at each call's start says the same."""
    bugged, right = (build(course, of) for of in (course.stage5.OffsetBugGPT, course.stage1.GPT))
    table = right.wpe.weight.clone()
    for start, T in ((7, 3), (10, 1), (11, 5)):
        right.wpe.weight[start : start + T] = table[:T]
    got, presents = feed(bugged, text(2, 16), 7, 3, 1, 5)
    want, expected = feed(right, text(2, 16), 7, 3, 1, 5)
    assert close(got, want)
    assert all(
        close(*pair) for a, b in zip(presents, expected, strict=True) for pair in zip(a, b, strict=True)
    )


def test_offset_bug_keeps_to_block_size(course: Any) -> None:
    bugged = build(course, course.stage5.OffsetBugGPT)
    _, past = bugged(text(2, 21))
    bugged(text(2, 2), past)
    with pytest.raises(ValueError, match="`21` cached"):
        bugged(text(2, 3), past)


def test_offset_bug_shows_within_a_few_steps(course: Any) -> None:
    steps = []
    for seed in range(8):
        model = build(course, course.stage5.OffsetBugGPT, seed=seed)
        steps.append(course.stage5.first_bad_step(model=model, idx=text(2, 7), n_new=16))
    assert all(type(step) is int and step >= 1 for step in steps)
    assert sorted(steps)[len(steps) // 2] <= 4


@pytest.mark.parametrize(("bad", "n_new", "step"), [(0, 4, 0), (3, 4, 3), (4, 4, None), (9, 0, None)])
def test_first_bad_step_counts_generated_tokens(course: Any, bad: int, n_new: int, step: int | None) -> None:
    """The second row goes wrong at generated token `bad`, only where there is a past or none was needed."""

    def model(idx: Tensor, past: Any = None) -> Any:
        P = 0 if past is None else past[0][0].shape[2]
        S = P + idx.shape[1]
        logits = torch.zeros(2, idx.shape[1], 5)
        calls.append((P, idx.shape[1]))
        wrong = P == S - 1 if bad else len(calls) == 1
        if wrong and bad == S - 6:
            logits[1, -1, 3] = 1
        return logits, [(torch.zeros(2, 1, S, 1),) * 2]

    calls: list[tuple[int, int]] = []
    assert course.stage5.first_bad_step(model, text(2, 6, vocab_size=5), n_new) == step


def test_first_bad_step_of_a_right_model_is_none(course: Any) -> None:
    idx = text(3, 5)
    assert course.stage5.first_bad_step(build(course, course.stage1.GPT), idx, 18) is None
    assert torch.equal(idx, text(3, 5))


# stage 6


def by_hand(attention: Any, x: Tensor, may_see: Tensor) -> Tensor:
    """Attend (B, S, C) with a mask (S, S), without a cache."""
    B, S, C = x.shape
    q, k, v = (part.view(B, S, 5, 7).transpose(1, 2) for part in attention.c_attn(x).chunk(3, dim=-1))
    scores = (q @ k.mT / math.sqrt(7)).masked_fill(~may_see, -math.inf)
    return attention.c_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, S, C))


CUTS = pytest.mark.parametrize("cut", [(8,), (5, 3), (1,) * 8, (3, 1, 4)], ids=str)


@CUTS
@pytest.mark.parametrize("name", ["NoMaskAttention", "SquareMaskAttention"])
def test_wrong_masks_let_through_what_they_say(course: Any, name: str, cut: tuple[int, ...]) -> None:
    attention = weighted(getattr(course.stage6, name)(course.gpt2.Config(**SIZES)))
    x = torch.randn(2, 8, 35, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    may_see, start = torch.zeros(8, 8, dtype=torch.bool), 0
    outputs, past = [], None
    for piece in x.split(cut, dim=1):
        y, past = attention(piece, past=past)
        outputs.append(y)
        T = piece.shape[1]
        rows = torch.ones(T, start + T, dtype=torch.bool)
        may_see[start : start + T, : start + T] = rows.tril() if "Square" in name and T > 1 else rows
        start += T
    assert close(torch.cat(outputs, dim=1), by_hand(attention, x, may_see))


def test_wrong_masks_leave_the_pair_as_it_is(course: Any) -> None:
    cfg, x = course.gpt2.Config(**SIZES), torch.randn(2, 5, 35, dtype=torch.float64)
    kinds = (course.stage1.Attention, course.stage6.NoMaskAttention, course.stage6.SquareMaskAttention)
    right, *wrong = (weighted(of(cfg)) for of in kinds)
    (_, past) = right(x[:, :3])
    expected = right(x[:, 3:], past)[1]
    for attention in wrong:
        assert all(map(torch.equal, attention(x[:, 3:], past)[1], expected))


def test_square_mask_fails_in_the_second_piece_only(course: Any) -> None:
    square = with_attention(course, course.stage6.SquareMaskAttention)
    right = build(course, course.stage1.GPT)
    idx = text(2, 12)
    expected = right(idx)[0]
    assert close(square(idx)[0], expected)
    assert close(feed(square, idx, 5, *(1,) * 7)[0], expected)
    pieces, _ = feed(square, idx, 8, 4)
    assert close(pieces[:, :8], expected[:, :8])
    assert not any(close(pieces[:, at], expected[:, at]) for at in range(8, 12))


@pytest.mark.parametrize(("chunk", "fed"), [(3, [3, 3, 1]), (1, [1] * 7), (7, [7]), (9, [7]), (6, [6, 1])])
def test_chunked_prefill_feeds_every_position_once(course: Any, chunk: int, fed: list[int]) -> None:
    model, seen = build(course, course.stage1.GPT), []

    def spy(idx: Tensor, past: Any = None) -> Any:
        seen.append(idx.shape[1])
        return model(idx, past)

    logits, presents = course.stage6.chunked_prefill(model=spy, idx=text(2, 7), chunk=chunk)
    assert seen == fed
    assert close(logits, model(text(2, 7))[0])
    assert presents[2][1].shape == (2, 5, 7, 7)


def test_chunk_gap_tells_masks_apart(course: Any) -> None:
    kinds = (course.stage1.Attention, course.stage6.NoMaskAttention, course.stage6.SquareMaskAttention)
    right, unmasked, square = (with_attention(course, of) for of in kinds)
    gap, idx = course.stage6.chunk_gap, text(2, 12)
    assert type(gap(model=right, idx=idx, chunk=8)) is float
    assert all(gap(right, idx, chunk) < 1e-11 for chunk in (1, 5, 8, 12))
    assert all(gap(unmasked, idx, chunk) > 1e-3 for chunk in (1, 5, 8))
    assert gap(square, idx, 12) == 0.0
    assert gap(square, idx, 1) < 1e-11
    assert gap(square, idx, 8) > 1e-3


# stage 7


@CUTS
def test_hoarding_changes_no_output_and_keeps_four(course: Any, cut: tuple[int, ...]) -> None:
    cfg, x = course.gpt2.Config(**SIZES), torch.randn(2, 8, 35, dtype=torch.float64)
    right, hoarder = (weighted(of(cfg)) for of in (course.stage1.Attention, course.stage7.HoardingAttention))
    past = None
    for start, piece in zip([sum(cut[:i]) for i in range(len(cut))], x.split(cut, dim=1), strict=True):
        y, past = hoarder(piece, past=past)
        before = None if start == 0 else right(x[:, :start])[1]
        assert close(y, right(piece, before)[0])
    q, k, v = (part.view(2, 8, 5, 7).transpose(1, 2) for part in hoarder.c_attn(x).chunk(3, dim=-1))
    assert all(close(*pair) for pair in zip(past, (k, v, q, x), strict=True))


def test_hoard_holds_no_storage_but_its_own(course: Any) -> None:
    hoarder = weighted(course.stage7.HoardingAttention(course.gpt2.Config(**SIZES)))
    x = torch.randn(2, 3, 35, dtype=torch.float64)
    _, past = hoarder(x)
    assert sum(t.untyped_storage().nbytes() for t in past) == sum(t.nbytes for t in past)
    x.zero_()
    assert past[3].abs().sum() > 0


def test_hoarding_gpt_says_what_stage_1_says(course: Any) -> None:
    hoarder, right = (
        with_attention(course, of) for of in (course.stage7.HoardingAttention, course.stage1.Attention)
    )
    got, past = feed(hoarder, text(2, 9), 4, 1, 4)
    assert close(got, feed(right, text(2, 9), 4, 1, 4)[0])
    assert course.stage7.hoard_ratio(past=past) == 2.0


def test_hoard_ratio_asks_every_tensor(course: Any) -> None:
    k, x = torch.zeros(2, 3, 5, 7, dtype=torch.int8), torch.zeros(2, 5, 21)
    past = [(k, k, k.double(), x), [k.half(), k.half(), torch.zeros(0), x[:, :0]]]
    held = (210 * 2 + 210 * 8 + 210 * 4) + 420 * 2
    assert course.stage7.hoard_ratio(past) == held / (210 * 2 + 420 * 2)


# stage 8


def scripted(uncached: Tensor, off: Tensor) -> Forward:
    """A model whose last logits at step s are uncached[s], or with a past uncached[s] + off[s]."""

    def model(idx: Tensor, past: Any = None) -> Any:
        P = 0 if past is None else past[0][0].shape[2]
        S = P + idx.shape[1]
        logits = torch.zeros(1, idx.shape[1], uncached.shape[1])
        logits[0, -1] = uncached[S - 4] + (off[S - 4] if P else 0)
        return logits, [(torch.zeros(1, 1, S, 1),) * 2]

    return model


def test_report_stops_at_the_first_disagreement(course: Any) -> None:
    uncached = torch.tensor([[0.0, 1, 5], [0, 3, 2], [4, 3.75, 0], [9, 0, 0], [9, 0, 0]])
    off = torch.zeros(5, 3)
    off[1, 0], off[2, 0], off[3, 2] = -0.75, -0.5, 100
    report = course.stage8.bf16_report(model=scripted(uncached, off), idx=text(1, 4), n_new=5)
    assert isinstance(report, tuple)
    assert report == course.stage8.Bf16Report(first_mismatch=2, top2_gap=0.25, max_logit_diff=0.75)
    assert [type(value) for value in report] == [int, float, float]


def test_report_without_a_disagreement_covers_all_steps(course: Any) -> None:
    off = torch.zeros(4, 3)
    off[3, 1] = -0.125
    uncached = torch.tensor([[0.0, 1, 5]] * 4)
    assert course.stage8.bf16_report(scripted(uncached, off), text(1, 4), 4) == (None, None, 0.125)
    assert course.stage8.bf16_report(scripted(uncached, off), text(1, 4), 3) == (None, None, 0.0)
    assert course.stage8.bf16_report(scripted(uncached, off), text(1, 4), 0) == (None, None, 0.0)


def test_right_models_in_bf16_part_only_at_a_near_tie(course: Any) -> None:
    for seed in range(5):
        model = build(course, course.stage1.GPT, seed=seed, dtype=torch.bfloat16)
        report = course.stage8.bf16_report(model, text(1, 5), 18)
        assert report.first_mismatch is None or report.top2_gap <= 2 * report.max_logit_diff


# stage 9


class Stale:
    """A model that is right but hands back the past that it was handed."""

    def __init__(self, model: Any) -> None:
        self.model, self.cfg = model, model.cfg

    def __call__(self, idx: Tensor, past: Any = None) -> Any:
        logits, presents = self.model(idx, past)
        return logits, presents if past is None or not past[0][0].shape[2] else past


def bugged(course: Any, name: str, sizes: dict[str, int], **drawn: Any) -> Any:
    """Build a model with one of the named bugs."""
    if name == "position":
        return build(course, course.stage5.OffsetBugGPT, sizes, **drawn)
    if name == "stale-cache":
        return Stale(build(course, course.stage1.GPT, sizes, **drawn))
    stage6 = course.stage6
    kinds = {"no-mask": stage6.NoMaskAttention, "square-mask": stage6.SquareMaskAttention}
    return with_attention(course, kinds[name], sizes, **drawn)


def unusual(name: str) -> ModuleType:
    """Import a correct sample's stage 1 as a real module."""
    folder = str(CORRECT / name)
    sys.path.insert(0, folder)
    ours = sys.modules.pop("stage1_attention", None)
    try:
        return importlib.import_module("stage1_attention")
    finally:
        sys.path.remove(folder)
        sys.modules.pop("stage1_attention", None)
        if ours is not None:
            sys.modules["stage1_attention"] = ours


def diagnosed(course: Any, model: Any, cfg: Any = None) -> str:
    said = course.stage9.diagnose(model=model, cfg=cfg or model.cfg)
    assert type(said) is str
    return said


DRAWS = [
    (TINY, {"std": 0.5}),
    (FEW, {"std": 0.2, "dtype": torch.float32}),
    (SIZES, {"std": 0.02, "dtype": torch.float32}),
    (SIZES, {"seed": 5}),
    (DEEP, {"seed": 7, "std": 0.2}),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit's
@pytest.mark.parametrize("name", RIGHT_MODELS)
def test_diagnose_leaves_right_models_alone(course: Any, name: str) -> None:
    of = unusual(name).GPT
    for sizes, drawn in DRAWS[1], (FEW, {"std": 0.3}):
        cfg = course.gpt2.Config(**sizes)
        assert diagnosed(course, build(course, of, sizes, **drawn), cfg) == "ok"


@pytest.mark.parametrize(("sizes", "drawn"), DRAWS)
def test_diagnose_leaves_stage_1_alone_at_any_size(course: Any, sizes: Any, drawn: Any) -> None:
    assert diagnosed(course, build(course, course.stage1.GPT, sizes, **drawn)) == "ok"


def test_diagnose_leaves_bf16_and_the_small_model_alone(course: Any) -> None:
    assert diagnosed(course, build(course, course.stage1.GPT, FEW, dtype=torch.bfloat16)) == "ok"
    small = course.gpt2.GPT.from_pretrained(COURSE.exercises / "small")
    model = course.stage1.GPT(small.cfg).eval()
    model.load_state_dict(small.state_dict())
    assert diagnosed(course, model) == "ok"


@pytest.mark.parametrize(("sizes", "drawn"), DRAWS)
@pytest.mark.parametrize("name", ["position", "no-mask", "square-mask", "stale-cache"])
def test_diagnose_names_the_bug(course: Any, name: str, sizes: Any, drawn: Any) -> None:
    assert diagnosed(course, bugged(course, name, sizes, **drawn)) == name


def changed(course: Any, change: Callable[..., Any]) -> Any:
    """A right model whose answer goes through `change(logits, presents, past)`; past is None without one."""
    model = build(course, course.stage1.GPT, FEW)

    def forward(idx: Tensor, past: Any = None) -> Any:
        logits, presents = model(idx, past)
        return change(logits, presents, None if past is None or not past[0][0].shape[2] else past)

    forward.cfg = model.cfg  # type: ignore[attr-defined]
    return forward


def grown_in_place(logits: Tensor, presents: Any, past: Any) -> Any:
    if past is not None:
        past[:] = presents
    return logits, presents


OTHERS: dict[str, Callable[..., Any]] = {
    "nan": lambda logits, presents, past: (logits * (1 if past is None else math.nan), presents),
    "half": lambda logits, presents, past: (
        logits,
        [tuple(t.half().to(t.dtype) for t in p) for p in presents],
    ),
    "float32": lambda logits, presents, past: (logits, [tuple(t.float() for t in p) for p in presents]),
    "new first": lambda logits, presents, past: (logits, [tuple(t.roll(1, 2) for t in p) for p in presents]),
    "last layer": lambda logits, presents, past: (logits, [*presents[:-1], (past or presents)[-1]]),
    "swapped": lambda logits, presents, past: (logits, [(v, k) for k, v in presents]),
    "a stack": lambda logits, presents, past: (logits, torch.stack([torch.stack(list(p)) for p in presents])),
    "last only": lambda logits, presents, past: (logits[:, -1:], presents),
    "louder": lambda logits, presents, past: (logits * (1 if past is None else 1.01), presents),
    "in place": grown_in_place,
    "fickle": lambda logits, presents, past: (logits + torch.randn_like(logits), presents),
    "rows": lambda logits, presents, past: (logits + logits.mean(0), presents),
    "late": lambda logits, presents, past: (logits * (presents[0][0].shape[2] < 8 or 1.1), presents),
    "raises": lambda logits, presents, past: past.nothing,
    "nothing": lambda logits, presents, past: None,
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS.keys())
def test_diagnose_calls_any_further_fault_other(course: Any, change: Callable[..., Any]) -> None:
    assert diagnosed(course, changed(course, change)) == "other"


@pytest.mark.parametrize("error", [ValueError, IndexError, RuntimeError, NotImplementedError])
def test_diagnose_calls_a_model_that_raises_other(course: Any, error: type[Exception]) -> None:
    model = build(course, course.stage1.GPT, FEW)

    def forward(idx: Tensor, past: Any = None) -> Any:
        if past is not None and idx.shape[1] > 1:
            raise error("the size of tensor a (2) must match the size of tensor b (5)")
        return model(idx, past)

    assert course.stage9.diagnose(forward, model.cfg) == "other"


def test_diagnose_wants_the_end_to_be_minded(course: Any) -> None:
    right = build(course, course.stage1.GPT, FEW)
    wide = build(course, course.stage1.GPT, FEW | {"block_size": 12})
    assert course.stage9.diagnose(wide, right.cfg) == "other"


def test_diagnose_keeps_no_graph_and_changes_nothing(course: Any) -> None:
    model = build(course, course.stage1.GPT, FEW).requires_grad_(True)
    before = {name: p.clone() for name, p in model.named_parameters()}
    assert diagnosed(course, model) == "ok"
    assert all(p.grad is None and torch.equal(p, before[name]) for name, p in model.named_parameters())
