"""Stage 1, harsher: long texts in many pieces, a grid of queries, other people's pasts, texts in turn."""

from typing import NamedTuple

import pytest
import torch

from grader import expect, probe

check = pytest.mark.check

PIECES = {  # they start on, before and after powers of two, and no two neighbours are alike but where all are
    "ones": [1] * 37,
    "fives": [5] * 9 + [3],
    "uneven": [3, 14, 16, 20],
    "late": [35, 18],
    "mixed": [1, 15, 1, 16, 1, 1, 7, 11],
    "far": [66, 61, 2, 128, 5],
}
GRID = [(0, 1), (0, 6), (1, 2), (1, 9), (4, 1), (3, 3), (5, 4), (9, 3), (16, 5), (33, 7)]
GRID += [(63, 4), (64, 5), (65, 3), (127, 6), (130, 7)]


class KV(NamedTuple):
    """A pair by another name."""

    k: torch.Tensor
    v: torch.Tensor


def two(student, oracle, rng, name="GPT", dtype=torch.float64, **other):
    """Build the student's module and ours with the same weights, in sizes that are all different."""
    sizes = {"n_layer": 3, "n_head": 2, "n_embd": 14, "block_size": 64, "vocab_size": 37} | other
    cfg = oracle.Config(**sizes)
    ours = probe.hot(getattr(oracle, name)(cfg), rng, dtype)
    return cfg, ours, expect.build(student, name, cfg, ours)


@check(weight=0.5, category="a long text in many pieces")
@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES.keys())
def test_long_text_in_pieces(student, oracle, rng, pieces):
    """A long text gives the same logits however it is cut into pieces"""
    cfg, ours, gpt = two(student, oracle, rng, block_size=270)
    idx = probe.ids(rng, cfg, 3, sum(pieces))
    logits, _ = gpt.in_chunks(idx, pieces)
    expect.close(logits, ours(idx), "logits", chunks=pieces)


@check(weight=2, category="which keys each query sees")
def test_every_query_sees_its_keys(student, oracle, rng):
    """Attention: the right keys for every query, whatever the sizes of past and present"""
    cfg, ours, attention = two(student, oracle, rng, "Attention", block_size=140)
    for P, T in GRID:
        x = probe.inputs(rng, cfg, 3, P + T)
        y, (k, v) = probe.attended(ours, x, cfg)
        past = (k[:, :, :P].contiguous(), v[:, :, :P].contiguous()) if P else None
        got, _ = attention(x[:, P:], past)
        expect.close(got, y[:, P:], f"attention's y for {T} new positions on a past of {P}", start=P)


@check(weight=1, category="the block on a past")
def test_block_on_a_past(student, oracle, rng):
    """Block: several new positions on a past"""
    cfg, ours, block = two(student, oracle, rng, "Block")
    x = probe.inputs(rng, cfg, 3, 19)
    y, _ = block.in_chunks(x, (1, 7, 2, 9))
    expect.close(y, ours(x), "the block's x", chunks=(1, 7, 2, 9))


@check(weight=1, category="keys and values of every layer")
@pytest.mark.parametrize("pieces", [[20], [9, 8, 3], [1] * 6], ids=["at-once", "pieces", "ones"])
def test_keys_and_values_of_every_layer(student, oracle, rng, pieces):
    """Every layer's pair holds the projection's own keys and values"""
    cfg, ours, gpt = two(student, oracle, rng)
    idx = probe.ids(rng, cfg, 3, sum(pieces))
    _, want = probe.remembered(ours, idx)
    _, presents = gpt.in_chunks(idx, pieces)
    for layer, ((k, v), (keys, values)) in enumerate(zip(presents, want)):
        expect.close(k, keys, f"layer {layer}'s keys", chunks=pieces)
        expect.close(v, values, f"layer {layer}'s values", chunks=pieces)


@check(weight=1, category="rows of a batch")
def test_rows_of_a_batch_do_not_mix(student, oracle, rng):
    """Each row of a batch gives what it gives alone"""
    cfg, ours, gpt = two(student, oracle, rng)
    idx = probe.ids(rng, cfg, 5, 12)
    logits, past = gpt.in_chunks(idx, (7, 4, 1))
    for row in range(5):
        expect.close(logits[row : row + 1], ours(idx[row : row + 1]), f"logits of batch row {row}")
    again, _ = gpt(idx[2:3, :3], [(k[2:3, :, :5], v[2:3, :, :5]) for k, v in past])
    want = ours(torch.cat([idx[2:3, :5], idx[2:3, :3]], dim=1))[:, 5:]
    expect.close(again, want, "logits of one row, taken out of a batch", start=5)


@check(weight=0.5, category="another implementation's cache")
@pytest.mark.parametrize("form", ["lists", "tuples", "named", "strided"])
def test_another_implementations_past(student, oracle, rng, form):
    """A past that another right implementation made can be continued"""
    cfg, ours, gpt = two(student, oracle, rng)
    P, T = 11, 5
    idx = probe.ids(rng, cfg, 3, P + T)
    want, pairs = probe.remembered(ours, idx)
    past = [(k[:, :, :P].contiguous(), v[:, :, :P].contiguous()) for k, v in pairs]
    if form == "lists":
        past = [list(pair) for pair in past]
    if form == "tuples":
        past = tuple(past)
    if form == "named":
        past = tuple(KV(k, v) for k, v in past)
    if (
        form == "strided"
    ):  # the first P of a bigger buffer, laid out (B, S, H, D); what follows is not yet written
        past = [tuple(_in_a_buffer(t) for t in pair) for pair in past]
    logits, past = gpt.in_chunks(idx[:, P:], (T - 1, 1), past)
    expect.close(logits, want[:, P:], "logits on another implementation's past", chunks=(T - 1, 1), start=P)


def _in_a_buffer(t):
    """Put (B, H, P, D) into a bigger buffer that is NaN beyond P."""
    B, H, P, D = t.shape
    buffer = torch.full((B, P + 9, H, D), float("nan"), dtype=t.dtype)
    buffer[:, :P] = t.transpose(1, 2)
    return buffer[:, :P].transpose(1, 2)


@check(weight=2, category="two texts in turn")
def test_two_texts_in_turn(student, oracle, rng):
    """One model can work on two texts in turn, and then begin a third"""
    cfg, ours, gpt = two(student, oracle, rng)
    texts = [probe.ids(rng, cfg, 2, 12), probe.ids(rng, cfg, 2, 12)]
    pasts, outs = [None, None], [[], []]
    for piece in ((0, 5), (5, 6), (6, 9), (9, 12)):
        for i, text in enumerate(texts):
            out, pasts[i] = gpt(text[:, slice(*piece)], pasts[i])
            outs[i].append(out)
    for text, out, name in zip(texts, outs, ("first", "second")):
        expect.close(
            torch.cat(out, dim=1), ours(text), f"logits of the {name} of two texts", chunks=(5, 1, 3, 3)
        )
    fresh = probe.ids(rng, cfg, 3, 4)
    expect.close(gpt(fresh)[0], ours(fresh), "logits of a new text on a model that was used before")


@check(weight=1, category="two models side by side")
def test_two_models_in_turn(student, oracle, rng):
    """Two models in one program keep out of each other's way"""
    cfg, ours, gpt = two(student, oracle, rng)
    other_ours = probe.hot(oracle.GPT(cfg), rng)
    other = expect.build(student, "GPT", cfg, other_ours)
    idx = probe.ids(rng, cfg, 2, 9)
    _, past = gpt(idx[:, :5])
    _, other_past = other(idx[:, :5])
    for model, reference, before, name in (
        (gpt, ours, past, "first"),
        (other, other_ours, other_past, "second"),
    ):
        logits, _ = model(idx[:, 5:], before)
        expect.close(logits, reference(idx)[:, 5:], f"logits of the {name} of two models", start=5)


@check(weight=2, category="branches of one prefill")
def test_branches_of_one_prefill(student, oracle, rng):
    """Two continuations of one prefill can be written in turn, token by token"""
    cfg, ours, gpt = two(student, oracle, rng)
    prompt = probe.ids(rng, cfg, 2, 6)
    branches = [probe.ids(rng, cfg, 2, 5) for _ in range(2)]
    _, prefill = gpt(prompt)
    pasts, outs = [prefill, prefill], [[], []]
    for piece in ((0, 1), (1, 2), (2, 5)):
        for i, branch in enumerate(branches):
            out, pasts[i] = gpt(branch[:, slice(*piece)], pasts[i])
            outs[i].append(out)
    for branch, out, name in zip(branches, outs, ("first", "second")):
        want = ours(torch.cat([prompt, branch], dim=1))[:, 6:]
        expect.close(torch.cat(out, dim=1), want, f"logits of the {name} branch", chunks=(1, 1, 3), start=6)
    logits, _ = gpt(branches[0], prefill)
    want = ours(torch.cat([prompt, branches[0]], dim=1))[:, 6:]
    expect.close(logits, want, "logits of the prefill continued once more", start=6)


@check(weight=1, category="branches of attention's past")
def test_branches_of_attentions_past(student, oracle, rng):
    """Attention by itself leaves its past alone, too"""
    cfg, ours, attention = two(student, oracle, rng, "Attention")
    x = probe.inputs(rng, cfg, 2, 6)
    ends = [probe.inputs(rng, cfg, 2, 2) for _ in range(2)]
    _, past = attention(x)
    presents = [attention(end, past)[1] for end in ends]
    for end, present, name in zip(ends, presents, ("first", "second")):
        more = probe.inputs(rng, cfg, 2, 3)
        y, _ = attention(more, present)
        want = ours(torch.cat([x, end, more], dim=1))[:, 8:]
        expect.close(y, want, f"attention's y on the {name} of two branches", start=8)


@check(weight=1, category="the longest text")
def test_refused_call_leaves_the_past_usable(student, oracle, rng):
    """Too many positions raise ValueError, with and without a past, and the past can still be used"""
    cfg, ours, gpt = two(student, oracle, rng, block_size=17)
    idx = probe.ids(rng, cfg, 2, 20)
    expect.refuses(lambda: gpt.module(idx[:, :18]), "block_size + 1 positions without a past")
    _, past = gpt(idx[:, :15])
    for T in (3, 5):
        expect.refuses(
            lambda T=T: gpt.module(idx[:, 15 : 15 + T], past), f"15 + {T} positions, block_size 17,"
        )
    logits, past = gpt(idx[:, 15:17], past)
    expect.close(logits, ours(idx[:, :17])[:, 15:], "logits after a refused call", start=15)
    expect.refuses(lambda: gpt.module(idx[:, 17:18], past), "one position on a full past")


@check(weight=1, category="precision and dtype of the cache")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_precision_of_the_cache(student, oracle, rng, dtype):
    """The cache keeps dtype and precision, one position and several at a time"""
    cfg, ours, gpt = two(student, oracle, rng, dtype=dtype)
    idx = probe.ids(rng, cfg, 2, 15)
    pieces = (6, 1, 5, 1, 2)
    want, pairs = probe.remembered(ours, idx)
    logits, presents = gpt.in_chunks(idx, pieces)
    tolerance = expect.TOLERANCE[dtype]
    for layer, ((k, v), (keys, values)) in enumerate(zip(presents, pairs)):
        expect.close(k, keys, f"layer {layer}'s keys", tolerance, pieces)
        expect.close(v, values, f"layer {layer}'s values", tolerance, pieces)
    expect.close(logits, want, "logits", tolerance, pieces)


@check(weight=1, category="calls by keyword")
def test_calls_by_keyword(student, oracle, rng):
    """Everything can be called by keyword: idx, x and past"""
    cfg, ours, gpt = two(student, oracle, rng)
    idx = probe.ids(rng, cfg, 2, 9)
    _, past = gpt(idx=idx[:, :4], past=None)
    logits, _ = gpt(past=past, idx=idx[:, 4:])
    expect.close(logits, ours(idx)[:, 4:], "logits", start=4)
    for name in ("Attention", "Block"):
        cfg, ours, module = two(student, oracle, rng, name)
        x = probe.inputs(rng, cfg, 2, 9)
        _, past = module(x=x[:, :4], past=None)
        y, _ = module(past=past, x=x[:, 4:])
        expect.close(y, ours(x)[:, 4:], f"{name}'s output", start=4)


@check(weight=0.5, category="other sizes")
@pytest.mark.parametrize(
    "sizes",
    [{"n_head": 1, "n_embd": 13}, {"n_head": 11, "n_embd": 11, "n_layer": 1}, {"n_head": 4, "n_embd": 44}],
    ids=["one-head", "heads-of-one", "wide-heads"],
)
def test_other_sizes(student, oracle, rng, sizes):
    """One head, heads of one number, wide heads; a batch of one"""
    cfg, ours, gpt = two(student, oracle, rng, **sizes)
    idx = probe.ids(rng, cfg, 1, 18)
    pieces = (5, 6, 1, 1, 5)
    logits, _ = gpt.in_chunks(idx, pieces)
    expect.close(logits, ours(idx), "logits", chunks=pieces)
