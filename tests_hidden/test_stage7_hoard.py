"""Stage 7, harsher: other sizes and dtypes, pasts used twice, hoards of unequal parts."""

import pytest
import torch

from grader import bugged, claims, expect, probe

check = pytest.mark.check
pytestmark = pytest.mark.usefixtures("own_stage1")

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.uint8)


def two(student, oracle, rng, dtype=torch.float64, **other):
    """Build the student's HoardingAttention and our attention, with the same weights."""
    sizes = {"n_layer": 3, "n_head": 2, "n_embd": 14, "block_size": 64, "vocab_size": 37} | other
    cfg = oracle.Config(**sizes)
    ours = probe.hot(oracle.Attention(cfg), rng, dtype)
    return cfg, ours, claims.hoarder(student, cfg, ours)


def holds(attention, present, layer, chunks, tolerance=expect.PROJECTION):
    """Fail unless a present holds what a layer worked with."""
    B, S, _ = layer.x.shape
    for got, name in zip(attention.held(present, B, S), claims.HELD):
        expect.close(got, getattr(layer, name), f"the present's {name}", tolerance, chunks)


@check(weight=2, category="a long text in many pieces")
@pytest.mark.parametrize("pieces", [[1] * 21, [5, 9, 1, 8], [2, 19]], ids=["ones", "uneven", "late"])
def test_long_text_in_pieces(student, oracle, rng, pieces):
    """Outputs and cache of a long text, however it is cut"""
    cfg, ours, attention = two(student, oracle, rng)
    x = probe.inputs(rng, cfg, 3, sum(pieces))
    want, layer = bugged.attended(ours, x, bugged.causal(0, sum(pieces)))
    y, present = attention.in_chunks(x, pieces)
    expect.close(y, want, "attention's y", chunks=pieces)
    holds(attention, present, layer, pieces)


@check(weight=1, category="a past that is used again")
def test_branches_and_forms_of_past(student, oracle, rng):
    """One past continued twice and left as it was, a past that we made, one of no positions, by keyword"""
    cfg, ours, attention = two(student, oracle, rng)
    x = probe.inputs(rng, cfg, 2, 6)
    ends = [probe.inputs(rng, cfg, 2, 3) for _ in range(2)]
    _, past = attention(x)
    _, first = bugged.attended(ours, x, bugged.causal(0, 6))
    made = [first.k, first.v, first.q, first.x]
    for end, before in ((ends[0], past), (ends[1], past), (ends[0], tuple(made)), (ends[1], made)):
        whole = torch.cat([x, end], dim=1)
        want, layer = bugged.attended(ours, whole, bugged.causal(0, 9))
        y, present = attention(past=before, x=end)
        expect.close(y, want[:, 6:], "attention's y on a past", start=6)
        holds(attention, present, layer, (6, 3))
    _, present = attention(x, tuple(t[:, :0] if t.dim() == 3 else t[:, :, :0] for t in made))
    holds(attention, present, first, (6,))


@check(weight=1, category="other sizes and dtypes")
def test_other_sizes_and_dtypes(student, oracle, rng):
    """One head, float32 and bfloat16: the cache has the dtype of its input"""
    for dtype, sizes in (
        (torch.float64, {"n_head": 1, "n_embd": 13}),
        (torch.float32, {}),
        (torch.bfloat16, {}),
    ):
        cfg, ours, attention = two(student, oracle, rng, dtype, **sizes)
        x = probe.inputs(rng, cfg, 1, 10, dtype)
        want, layer = bugged.attended(ours, x, bugged.causal(0, 10))
        y, present = attention.in_chunks(x, (4, 1, 5))
        expect.close(y, want, f"attention's y, {dtype}", expect.TOLERANCE[dtype], (4, 1, 5))
        holds(attention, present, layer, (4, 1, 5), expect.TOLERANCE[dtype])


@check(weight=2, category="hoard_ratio of unequal parts")
def test_hoard_ratio_of_unequal_parts(student, rng):
    """hoard_ratio: layers, and the four in a layer, may differ in size and dtype"""
    for layers in (1, 2, 5):
        past, held, needed = [], 0, 0
        for _ in range(layers):
            parts = []
            for place in range(4):
                B, S, D, kind = (
                    probe.number(rng, low, high) for low, high in ((1, 4), (2, 19), (1, 9), (0, 5))
                )
                shape = (B, S, D) if place == 3 else (B, probe.number(rng, 1, 6), S, D)
                parts.append(torch.zeros(shape, dtype=DTYPES[kind]))
                size = parts[-1].numel() * DTYPES[kind].itemsize
                held, needed = held + size, needed + size * (place < 2)
            past.append(tuple(parts))
        got = student.hoard_ratio(past=past)
        claims.near(got, held / needed, f"the ratio of {layers} unequal layers")


@check(weight=1, category="hoard_ratio of views")
def test_hoard_ratio_of_views(student, rng):
    """hoard_ratio: views count as what they are; lists will do for tuples"""
    S = probe.number(rng, 3, 9)
    buffer, one = torch.zeros(2, 3, 40, 4), torch.zeros(2, 1, S, 4)
    x = torch.zeros(1).expand(2, S, 12)
    past = [[buffer[:, :, :S], buffer[:, :, S : 2 * S], one.expand(2, 6, S, 4), x]]
    held, needed = (3 + 3 + 6 + 3) * 2 * S * 4, (3 + 3) * 2 * S * 4
    claims.near(student.hoard_ratio(past), held / needed, "the ratio of a hoard of views")
    claims.near(student.hoard_ratio(tuple(map(tuple, past))), held / needed, "the ratio of a tuple of tuples")
