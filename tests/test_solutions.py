"""The solutions do what the contract says, seen directly and not through the grader."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch

COURSE = Path(__file__).resolve().parent.parent
SIZES = {"n_layer": 3, "n_head": 5, "n_embd": 35, "block_size": 23, "vocab_size": 29}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}  # of the largest logit
DTYPES = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
CUTS = pytest.mark.parametrize("cuts", [(23,), (1,) * 23, (7, 5, 3, 8), (16, 1, 6), (2, 21)], ids=str)

Load = Callable[[str], ModuleType]


class Pair(NamedTuple):
    k: torch.Tensor
    v: torch.Tensor


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Compute on one thread: these sizes gain nothing from more, and a pool spins where cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def load() -> Iterator[Load]:
    """Import the given model and any solution as real modules, and leave no trace of them."""
    loaded: dict[str, ModuleType | None] = {}

    def load_file(stem: str) -> ModuleType:
        name = stem if stem == "gpt2" else f"solution_{stem}"
        if name not in loaded:
            loaded[name] = sys.modules.get(name)
            folder = COURSE / ("exercises" if stem == "gpt2" else "solutions")
            spec = importlib.util.spec_from_file_location(name, folder / f"{stem}.py")
            assert spec is not None
            assert spec.loader is not None
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        return sys.modules[name]

    load_file("gpt2")
    yield load_file
    for name, before in loaded.items():
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before


@pytest.fixture
def oracle(load: Load) -> Any:
    """Build a float64 oracle with weights that make every fault visible."""
    gpt2 = load("gpt2")
    model = gpt2.GPT(gpt2.Config(**SIZES)).double().eval()
    generator = torch.Generator().manual_seed(11)
    for p in model.parameters():
        p.data = torch.randn(p.shape, generator=generator, dtype=p.dtype) * 0.3
    return model


@pytest.fixture
def cached(load: Load, oracle: Any) -> Any:
    """Build stage 1's model with the oracle's weights."""
    model = load("stage1_attention").GPT(oracle.cfg).double().eval()
    model.load_state_dict(oracle.state_dict())
    return model


def draw_ids(*shape: int) -> torch.Tensor:
    return torch.randint(SIZES["vocab_size"], shape, generator=torch.Generator().manual_seed(3))


def feed(model: Any, pieces: tuple[torch.Tensor, ...], past: Any = None) -> tuple[torch.Tensor, Any]:
    logits = []
    for piece in pieces:
        out, past = model(piece, past=past)
        logits.append(out)
    return torch.cat(logits, dim=1), past


# stage 1


@CUTS
@DTYPES
def test_cached_logits_equal_the_oracles_at_every_position(
    oracle: Any, cached: Any, dtype: torch.dtype, cuts: tuple[int, ...]
) -> None:
    idx = draw_ids(2, 23)
    expected = oracle.to(dtype)(idx)
    got, presents = feed(cached.to(dtype), idx.split(cuts, dim=1))
    assert (got - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max()
    assert [tuple(t.shape) for pair in presents for t in pair] == [(2, 5, 23, 7)] * 6
    assert {t.dtype for pair in presents for t in pair} == {dtype}


def test_present_holds_the_projections_own_keys_and_values(cached: Any) -> None:
    x = torch.randn(2, 3, 35, dtype=torch.float64)
    attention = cached.h[0].attn
    _, (k, v) = attention(x)
    _, keys, values = attention.c_attn(x).split(35, dim=2)
    assert torch.equal(k, keys.view(2, 3, 5, 7).transpose(1, 2))
    assert torch.equal(v, values.view(2, 3, 5, 7).transpose(1, 2))


@pytest.mark.parametrize("container", [list, tuple])
@pytest.mark.parametrize("pair", [tuple, list, Pair._make])
def test_empty_past_means_no_past(cached: Any, container: type, pair: Callable[..., Any]) -> None:
    empty = container(pair([torch.empty(2, 5, 0, 7, dtype=torch.float64)] * 2) for _ in range(3))
    idx = draw_ids(2, 7)
    assert torch.equal(cached(idx, past=empty)[0], cached(idx)[0])


@pytest.mark.parametrize("T", [1, 3])
def test_one_prefill_can_be_continued_twice(oracle: Any, cached: Any, T: int) -> None:
    prompt = draw_ids(1, 5)
    left, right = draw_ids(2, 2 * T).split(1)
    _, past = cached(prompt)
    before = [t.clone() for pair in past for t in pair]
    first, past_left = feed(cached, (left[:, :T],), past)
    second, _ = feed(cached, right.split(T, dim=1), past)
    third, _ = feed(cached, (left[:, T:],), past_left)
    expected = [oracle(torch.cat([prompt, text], dim=1))[:, 5:] for text in (left, right)]
    assert all(torch.equal(a, b) for a, b in zip(before, (t for pair in past for t in pair), strict=True))
    assert torch.allclose(torch.cat([first, third], dim=1), expected[0], rtol=0, atol=1e-11)
    assert torch.allclose(second, expected[1], rtol=0, atol=1e-11)


def test_one_position_too_many_raises_and_leaves_the_past_usable(oracle: Any, cached: Any) -> None:
    idx = draw_ids(2, 24)
    _, past = cached(idx[:, :21])
    with pytest.raises(ValueError, match="`21` cached"):
        cached(idx[:, 21:], past)
    got, _ = cached(idx[:, 21:23], past)
    assert torch.allclose(got, oracle(idx[:, :23])[:, 21:], rtol=0, atol=1e-11)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (2, 1)])
def test_cache_keeps_nothing_alive_but_itself(cached: Any, shape: tuple[int, int]) -> None:
    _, past = cached(draw_ids(*shape))
    tensors = [t for pair in past for t in pair]
    held = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    assert sum(held.values()) == sum(t.nbytes for t in tensors)


def test_parameters_have_the_oracles_names_and_shapes(oracle: Any, cached: Any) -> None:
    ours = {name: p.shape for name, p in cached.named_parameters()}
    assert ours == {name: p.shape for name, p in oracle.named_parameters()}


# stage 2


@pytest.mark.parametrize(("B", "P0", "n_new"), [(1, 5, 7), (3, 1, 2), (2, 7, 1), (2, 3, 20)])
def test_cached_tokens_equal_the_oracles(
    load: Load, oracle: Any, cached: Any, B: int, P0: int, n_new: int
) -> None:
    idx = draw_ids(B, P0)
    tokens, past = load("stage2_generate").generate_cache(model=cached, idx=idx, n_new=n_new)
    assert torch.equal(tokens, load("gpt2").generate_nocache(oracle, idx, n_new))
    assert past[0][0].shape[2] == P0 + n_new - 1
    assert torch.equal(idx, draw_ids(B, P0))


def test_prompt_is_fed_once_and_then_one_position_a_call(load: Load, cached: Any) -> None:
    fed = []

    def spy(idx: torch.Tensor, past: Any = None) -> Any:
        fed.append(idx.shape[1])
        logits, presents = cached(idx, past)
        assert not logits.requires_grad
        return logits, presents

    load("stage2_generate").generate_cache(spy, draw_ids(2, 5), 7)
    assert fed == [5, 1, 1, 1, 1, 1, 1]


def test_nothing_new_gives_the_prompt_without_a_call(load: Load) -> None:
    def never(idx: torch.Tensor, past: Any = None) -> Any:
        raise AssertionError("called")

    tokens, _ = load("stage2_generate").generate_cache(never, draw_ids(2, 5), 0)
    assert torch.equal(tokens, draw_ids(2, 5))


@pytest.mark.parametrize(
    ("a", "b", "column"),
    [
        ([[5, 6, 7], [1, 2, 3]], [[5, 6, 7], [1, 2, 3]], None),
        ([[5, 6, 7], [1, 2, 3]], [[5, 6, 9], [1, 8, 3]], 1),
        ([[5, 6, 7]], [[4, 6, 7]], 0),
        ([[5, 6]], [[5, 6, 7]], 2),
        ([[5, 6, 7]], [[5, 9]], 1),
        ([[]], [[3]], 0),
        ([[]], [[]], None),
    ],
)
def test_first_mismatch_names_the_first_column(
    load: Load, a: list[list[int]], b: list[list[int]], column: int | None
) -> None:
    found = load("stage2_generate").first_mismatch(
        a=torch.tensor(a, dtype=torch.int64), b=torch.tensor(b, dtype=torch.int64)
    )
    assert found == column
    assert found is None or type(found) is int


# stage 3


@pytest.mark.parametrize(
    ("device", "waits"),
    [
        ("cpu", []),
        (torch.device("cpu"), []),
        ("cuda", ["cuda"]),
        ("cuda:1", ["cuda"]),
        (torch.device("cuda", 0), ["cuda"]),
        ("mps", ["mps"]),
        (torch.device("mps"), ["mps"]),
    ],
    ids=str,
)
def test_each_reading_of_the_clock_waits_for_the_device(
    load: Load, monkeypatch: pytest.MonkeyPatch, device: Any, waits: list[str]
) -> None:
    log: list[str] = []
    now = iter(range(0, 100, 2))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: log.append("cuda"))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: log.append("mps"))
    monkeypatch.setattr(time, "perf_counter", lambda: log.append("clock") or float(next(now)))
    seconds = load("stage3_timing").timed_steps(step_fn=lambda: log.append("step"), n_new=3, device=device)
    assert log == [*waits, "clock", "step", *waits, "clock"] * 3
    assert seconds == [2.0, 2.0, 2.0]
    assert all(type(s) is float for s in seconds)


def test_no_steps_take_no_times(load: Load) -> None:
    def never() -> None:
        raise AssertionError("called")

    assert load("stage3_timing").timed_steps(never, 0, "cpu") == []


# stage 4


def test_cache_bytes_asks_every_tensor(load: Load) -> None:
    k = torch.zeros(2, 3, 5, 7, dtype=torch.float64)
    past = [
        (k, k.expand(2, 3, 5, 7)),
        [torch.zeros(1, 1, 2, 3).bfloat16(), torch.zeros(0)],
        Pair(k.char(), k.bool()),
    ]
    total = load("stage4_memory").cache_bytes(past=past)
    assert total == 210 * 8 * 2 + 6 * 2 + 210 * 2
    assert type(total) is int


def test_cache_bytes_of_gpt2_after_the_lessons_text(load: Load) -> None:
    k = torch.empty(1, 12, 1011, 64, device="meta")
    assert load("stage4_memory").cache_bytes([(k, k)] * 12) == 74_539_008


@pytest.mark.parametrize(
    ("sizes", "expected"), [((12, 12, 64, 4), 73_728), ((32, 8, 128, 2), 131_072), ((3, 5, 7, 1), 210)]
)
def test_bytes_of_one_token(load: Load, sizes: tuple[int, int, int, int], expected: int) -> None:
    names = ("n_layer", "n_kv_head", "head_dim", "bytes_per_number")
    found = load("stage4_memory").kv_bytes_per_token(**dict(zip(names, sizes, strict=True)))
    assert found == expected
    assert type(found) is int
