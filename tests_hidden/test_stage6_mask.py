"""Stage 6, harsher: a grid of pasts and queries, other sizes, pasts used twice, gaps in a single number."""

import pytest
import torch

from grader import bugged, claims, expect, probe, twofaced

check = pytest.mark.check
pytestmark = pytest.mark.usefixtures("own_stage1")

ROWS = {"NoMaskAttention": bugged.unmasked, "SquareMaskAttention": bugged.square}
BOTH = pytest.mark.parametrize("name", ROWS, ids=["no-mask", "square"])


def two(student, oracle, rng, name, dtype=torch.float64, **other):
    """Build the student's attention and ours, with the same weights."""
    sizes = {"n_layer": 3, "n_head": 2, "n_embd": 14, "block_size": 64, "vocab_size": 37} | other
    cfg = oracle.Config(**sizes)
    ours = probe.hot(oracle.Attention(cfg), rng, dtype)
    return cfg, ours, expect.build(student, name, cfg, ours)


def model(oracle, rng):
    """Draw an uncached model."""
    cfg = oracle.Config(n_layer=3, n_head=2, n_embd=14, block_size=32, vocab_size=37)
    return cfg, probe.hot(oracle.GPT(cfg), rng)


@check(weight=2, category="which keys each query sees")
@BOTH
def test_every_query_sees_its_keys(student, oracle, rng, name):
    """The bug and no other, whatever the sizes of past and present"""
    cfg, ours, attention = two(student, oracle, rng, name)
    for P, T in ((0, 1), (0, 2), (0, 6), (1, 1), (1, 2), (1, 9), (4, 1), (3, 3), (5, 4), (9, 3), (33, 7)):
        x = probe.inputs(rng, cfg, 3, P + T)
        _, layer = bugged.attended(ours, x, bugged.causal(0, P + T))
        y, _ = attention(x[:, P:], (layer.k[:, :, :P], layer.v[:, :, :P]) if P else None)
        chunks = (P, T) if P else (T,)
        want, _ = bugged.attended(ours, x, bugged.in_calls(ROWS[name], chunks))
        what = f"attention's y for {T} new positions on a past of {P}"
        claims.broken(y, want[:, P:], ours(x)[:, P:], what, chunks, start=P)


@check(weight=1, category="a past that is used again")
@BOTH
def test_branches_and_forms_of_past(student, oracle, rng, name):
    """One past continued twice, pasts of other forms and of no positions, by keyword"""
    cfg, ours, attention = two(student, oracle, rng, name)
    x = probe.inputs(rng, cfg, 2, 5)
    ends = [probe.inputs(rng, cfg, 2, 3) for _ in range(2)]
    _, past = attention(x)
    for end, before in ((ends[0], past), (ends[1], past), (ends[0], list(past))):
        whole = torch.cat([x, end], dim=1)
        want, layer = bugged.attended(ours, whole, bugged.in_calls(ROWS[name], (5, 3)))
        y, (k, v) = attention(past=before, x=end)
        claims.broken(y, want[:, 5:], ours(whole)[:, 5:], "attention's y on a past", (5, 3), start=5)
        expect.close(k, layer.k, "the keys handed back", expect.PROJECTION)
        expect.close(v, layer.v, "the values handed back", expect.PROJECTION)
    empty = torch.zeros(2, cfg.n_head, 0, cfg.head_dim, dtype=torch.float64)
    y, _ = attention(x, (empty, empty))
    want, _ = bugged.attended(ours, x, ROWS[name](0, 5))
    claims.broken(y, want, ours(x), "attention's y on a past of no positions", [5])


@check(weight=1, category="other sizes and dtypes")
@BOTH
def test_other_sizes_and_dtypes(student, oracle, rng, name):
    """One head, float32 and bfloat16"""
    for dtype, sizes in (
        (torch.float64, {"n_head": 1, "n_embd": 13}),
        (torch.float32, {}),
        (torch.bfloat16, {}),
    ):
        cfg, ours, attention = two(student, oracle, rng, name, dtype, **sizes)
        x = probe.inputs(rng, cfg, 1, 10, dtype)
        y, _ = attention.in_chunks(x, (4, 1, 5))
        want, _ = bugged.attended(ours, x, bugged.in_calls(ROWS[name], (4, 1, 5)))
        expect.close(y, want, f"attention's y of this bug, {dtype}", expect.TOLERANCE[dtype], (4, 1, 5))


@check(weight=2, category="chunked_prefill of other prompts")
@pytest.mark.parametrize(
    ("B", "T", "chunk", "pieces"),
    [(3, 7, 1, [1] * 7), (1, 17, 16, [16, 1]), (2, 9, 9, [9]), (2, 1, 4, [1]), (4, 23, 5, [5, 5, 5, 5, 3])],
    ids=["ones", "one-left", "all", "one-token", "many"],
)
def test_chunked_prefill_of_other_prompts(student, oracle, rng, B, T, chunk, pieces):
    """chunked_prefill: pieces of one, one left over, one piece; the past goes from call to call"""
    cfg, ours = model(oracle, rng)
    idx = probe.ids(rng, cfg, B, T)
    spy = probe.Probe(ours, cfg, rng, (tuple, list))
    got = student.chunked_prefill(model=spy, idx=idx, chunk=chunk)
    logits, presents = expect.two(got, "what chunked_prefill returns", "(logits, presents)")
    expect.that(spy.fed == pieces, f"{T} positions in pieces of {chunk} are {pieces}, not {spy.fed}")
    expect.that(not spy.complaints, "; ".join(spy.complaints))
    expect.close(
        expect.tensor(logits, "logits", (B, T, 37), torch.float64), ours(idx), "logits", chunks=pieces
    )
    text, fault = spy.text_in(expect.pairs(presents, "presents", 3, (B, 2, T, 7), torch.float64))
    expect.that(not fault, f"presents are not what the model made: {fault}")
    expect.tokens(text, "the text in the cache", idx)


@check(weight=2, category="chunk_gap of one number")
def test_chunk_gap_of_one_number(student, oracle, rng):
    """chunk_gap: a single logit that differs is found, in any row, at any position"""
    cfg, ours = model(oracle, rng)
    idx = probe.ids(rng, cfg, 3, 11)
    places = ((1, 4, 7, -3.5), (0, 10, 36, 2.25), (2, 8, 0, -0.75), (0, 5, 11, 0.5))

    for row, position, token, off in places:

        def says(logits, P, row=row, position=position, token=token, off=off):
            logits = logits.clone()
            if P and P <= position < P + logits.shape[1]:
                logits[row, position - P, token] += off
            return logits

        spy = twofaced.TwoFaced(ours, cfg, rng, says)
        got = student.chunk_gap(model=spy, idx=idx, chunk=4)
        claims.near(got, abs(off), "chunk_gap where a single logit differs")
        claims.near(student.chunk_gap(spy, idx, 11), 0.0, "chunk_gap of one piece")


@check(weight=1, category="chunk_gap of real bugs")
@pytest.mark.parametrize("name", ["position", "stale-cache", "square-mask"])
def test_chunk_gap_of_real_bugs(student, oracle, rng, name):
    """chunk_gap: the largest difference, wherever it lies in a batch, up or down"""
    _, ours = model(oracle, rng)
    cached = bugged.Cached(ours, bugged.BUGS[name])

    def difference(idx):
        past, cut = None, []
        for piece in idx.split(5, dim=1):
            logits, past = cached(piece, past)
            cut.append(logits)
        return torch.cat(cut, dim=1) - cached(idx)[0]

    idx, gap = bugged.telling(ours, rng, (3, 13), difference)
    claims.near(student.chunk_gap(cached, idx, 5), gap, f"chunk_gap of a model with {name}")
