"""Stage 9: write the test.

For eight stages somebody else's test has told you whether your cache is right. Now you get a model,
somebody's, and nothing else: not its weights, and no right model to compare it with. Say whether its cache is
right, and if not, what is wrong.

A test is a small experiment for one hypothesis: "if *this* were wrong, then *that* would happen". You have
built each of these bugs. For each, ask what can be seen from outside that no right model shows, and none of
the other bugs.

Sizes: B batch, T new positions in a call, P positions already cached, S = P + T, H heads, D head size, V
vocabulary, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from gpt2 import Config

Past = Sequence[tuple[torch.Tensor, torch.Tensor]]  # one pair (k, v) a layer
Model = Callable[..., tuple[torch.Tensor, Past]]  # called as model(idx, past=None)
### BEGIN SOLUTION

LONGEST = 72  # positions read at most: a little more than 64, where tables made for a power of two end
# How far apart two right readings may be, as a share of the largest number. Rounding does a hundredth of
# that, or a tenth where a float64 model computes its softmax in float32; bugs do far more.
ROUNDING = {torch.float64: 1e-5, torch.float32: 1e-4}
COARSE = 0.1  # in the 16-bit types


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Say whether two readings of one thing agree, but for rounding."""
    return a.shape == b.shape and bool((a - b).abs().max() <= ROUNDING.get(b.dtype, COARSE) * b.abs().max())


def same_cache(a: Past, b: Past) -> bool:
    """Say whether two caches hold the same keys and values, but for rounding."""
    return all(same(*tensors) for pairs in zip(a, b, strict=True) for tensors in zip(*pairs, strict=True))


def copied(past: Past) -> Past:
    """Copy a cache, so that it can be seen later whether somebody has written into it."""
    return [(k.clone(), v.clone()) for k, v in past]


class Lab:
    """A model on the bench: ask it, never believe that the answer has the right form."""

    def __init__(self, model: Model, cfg: Config) -> None:
        self.model, self.cfg = model, cfg
        self.room = min(cfg.block_size, LONGEST)

    def ask(self, idx: torch.Tensor, past: Past | None = None) -> tuple[torch.Tensor, Past]:
        """Call the model; raise where it does not answer with finite logits and L pairs (B, H, any, D)."""
        logits, presents = self.model(idx, past=past)
        assert logits.shape == (*idx.shape, self.cfg.vocab_size)
        assert logits.isfinite().all()
        assert isinstance(presents, list | tuple)
        assert len(presents) == self.cfg.n_layer
        head = (idx.shape[0], self.cfg.n_head, self.cfg.n_embd // self.cfg.n_head)
        for pair in presents:
            assert isinstance(pair, list | tuple)
            k, v = pair
            assert k.shape == v.shape
            assert (*k.shape[:2], *k.shape[3:]) == head
            assert k.dtype == v.dtype == logits.dtype
        return logits, presents

    def read(
        self, idx: torch.Tensor, sizes: Sequence[int], past: Past | None = None
    ) -> tuple[torch.Tensor, Past | None]:
        """Feed a text in pieces of these sizes; return the logits of all of it and the last presents."""
        logits = []
        for piece in idx.split(list(sizes), dim=1):
            out, past = self.ask(piece, past)
            logits.append(out)
        return torch.cat(logits, dim=1), past

    def noticed(self, idx: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """Return what the positions of a text (B, T) know after one attention, (B, T, any).

        That is the second layer's keys, or the logits where there is one layer. After more of them a position
        also knows what those know that it sees.
        """
        logits, presents = self.read(idx, sizes)
        return logits if self.cfg.n_layer == 1 else presents[1][0].transpose(1, 2).flatten(2)

    def text(self, B: int, T: int) -> torch.Tensor:
        """Draw a text (B, T), the same one every time."""
        return torch.randint(self.cfg.vocab_size, (B, T), generator=torch.Generator().manual_seed(9))

    def changed(self, idx: torch.Tensor, place: int) -> torch.Tensor:
        """Copy a text with another token in one place."""
        idx = idx.clone()
        idx[:, place] = (idx[:, place] + 1) % self.cfg.vocab_size
        return idx


def is_fickle(lab: Lab) -> bool:
    """Hypothesis: one call has two answers, by dropout or by what an earlier call has left behind.

    Experiment: ask twice, and something else in between. It comes first: while the same call can give two
    answers, two different calls prove nothing.
    """
    idx = lab.text(2, lab.room)
    first, _ = lab.ask(idx)
    lab.ask(idx[:1, :2])
    return not same(lab.ask(idx)[0], first)


def is_rewritten(lab: Lab) -> bool:
    """Hypothesis: the cache that comes back does not begin with the one that was handed in.

    Experiment: go on from a past by one token and by two, and compare its positions. From here on a new
    token's key is where it should be, or not there at all.
    """
    idx = lab.text(2, 3)
    _, past = lab.ask(idx[:, :1])
    kept = copied(past)
    longer = [lab.ask(new, past)[1] for new in (idx[:, 1:2], idx[:, 1:])]
    return not all(same_cache([(k[:, :, :1], v[:, :, :1]) for k, v in some], kept) for some in longer)


def is_stale(lab: Lab) -> bool:
    """Hypothesis: what is new on a past is used in that call, and never stored.

    Experiment: the same. The logits of the one token are right, and the cache is still as long as the past.
    """
    idx = lab.text(2, 3)
    whole, _ = lab.ask(idx)
    _, past = lab.ask(idx[:, :1])
    one, after_one = lab.ask(idx[:, 1:2], past)
    _, after_two = lab.ask(idx[:, 1:], past)
    lengths = {t.shape[2] for presents in (after_one, after_two) for pair in presents for t in pair}
    return lengths == {1} and same(one, whole[:, 1:2])


def is_misplaced(lab: Lab) -> bool:
    """Hypothesis: on a past, tokens are told the wrong position.

    Experiment: a key of the first layer depends on two things, which token and at which position: it is a
    fingerprint of the place where the token believes to stand. So take one token's prints at all positions,
    in one call without a past. Then feed it on pasts of several lengths, one by one and two at once: is some
    print another position's? Or, if no position was told at all, are the prints of two places the same?
    """

    def prints(presents: Past) -> torch.Tensor:
        return presents[0][0][0].transpose(0, 1).flatten(1)  # (S, H·D)

    token = torch.ones(1, lab.room, dtype=torch.int64) % lab.cfg.vocab_size
    right = prints(lab.ask(token)[1])
    strange: list[tuple[int, torch.Tensor]] = []
    for P in (1, 2, lab.room - 2):
        _, past = lab.ask(torch.zeros(1, P, dtype=torch.int64))
        for sizes in ((1, 1), (2,)):
            found = prints(lab.read(token[:, :2], sizes, past)[1])
            strange += [(at, found[at]) for at in (P, P + 1) if not same(found[at], right[at])]
        fits = any(same(a, b) for _, a in strange for b in right)
        blind = any(same(a, b) for at, a in strange for to, b in strange if at < to)
        if fits or blind:
            return True
    return False


def is_unmasked(lab: Lab) -> bool:
    """Hypothesis: queries see the tokens after them.

    Experiment: let every query say which tokens it sees, without a past and on one. In a right model it is
    those up to its own; without a mask it is all. The last query may see all, so it has to be right.
    """
    T = min(3, lab.cfg.block_size // 2)
    idx = lab.text(1, T)
    is_last_right = same(lab.noticed(idx, (T,))[:, -1], lab.noticed(idx, (1,) * T)[:, -1])
    return is_last_right and any(bool(sees(lab, P, T, up_to=P).all()) for P in (0, T))


def is_square(lab: Lab) -> bool:
    """Hypothesis: of several tokens on a past, query j sees keys 0 … j and not 0 … P + j.

    Experiment: the same. In a right model every query sees all of the past. Under a square mask query j sees
    its tokens 0 … j, and of the new ones only itself, which needs no attention.
    """
    P = T = min(3, lab.cfg.block_size // 2)
    square = torch.cat([torch.ones(P, T).triu(), torch.eye(T)]).bool()
    return torch.equal(sees(lab, P, T, up_to=0), square)


def sees(lab: Lab, P: int, T: int, up_to: int) -> torch.Tensor:
    """Find which tokens each of T queries on a past of P sees, (S, T): those that move it when they change.

    A trace is not a view, though: it counts from a hundredth of the least that those tokens make that have to
    be seen, 0 … up_to + j by query j.
    """
    idx = lab.text(1, P + T)
    sizes = (P, T) if P else (T,)
    before = lab.noticed(idx, sizes)
    moves = torch.cat([lab.noticed(lab.changed(idx, i), sizes) - before for i in range(P + T)])
    size = moves[:, P:].abs().amax(dim=-1)  # (S, T)
    has_to = torch.ones(P + T, T).triu(-up_to).bool()
    return size > size[has_to].min() / 100


def is_inconsistent(lab: Lab) -> bool:
    """Hypothesis: something else is wrong.

    Experiment: a text has one right answer, however it is fed. Feed it in one call, each row by itself, and
    cut in three ways on top of an empty past; go on from one past with two texts in turn; and go too far.
    """
    N = lab.room
    idx = lab.text(2, N)
    whole, cache = lab.ask(idx)
    rows = torch.cat([lab.ask(row)[0] for row in idx.split(1)])
    empty = [(k[:, :, :0], v[:, :, :0]) for k, v in cache]
    cuts = [[1] * N, [N // 2, N - N // 2], [1] * (N % 8) + [5, 3] * (N // 8)]
    read = [lab.read(idx, cut, empty) for cut in cuts]
    return (
        not same(rows, whole)
        or any(not same(logits, whole) or not same_cache(past, cache) for logits, past in read)
        or cache[0][0].shape[2] != N
        or interferes(lab, idx, whole)
        or overruns(lab, cache)
    )


def interferes(lab: Lab, idx: torch.Tensor, whole: torch.Tensor) -> bool:
    """Go on from one past with two texts, turn by turn: does the past change, or one text see the other?"""
    other = lab.changed(idx, 2)
    _, past = lab.ask(idx[:, :2])
    kept = copied(past)
    here, ours = lab.ask(idx[:, 2:3], past)
    there, theirs = lab.ask(other[:, 2:3], past)
    here_too, _ = lab.ask(idx[:, 3:4], ours)
    there_too, _ = lab.ask(other[:, 3:4], theirs)
    expected = torch.cat([whole[:, 2:4], lab.ask(other[:, :4])[0][:, 2:]], dim=1)
    return not same_cache(past, kept) or not same(torch.cat([here, here_too, there, there_too], 1), expected)


def overruns(lab: Lab, cache: Past) -> bool:
    """Feed one token more than block_size, in one call and on a past: is it refused, the past left alone?"""
    N = cache[0][0].shape[2]
    kept = copied(cache)
    too_long = lab.text(2, lab.cfg.block_size + 1)
    for idx, past in ((too_long, None), (too_long[:, N:], cache)):
        try:
            lab.model(idx, past=past)
        except ValueError:
            continue
        return True
    return not same_cache(cache, kept)


EXPERIMENTS = (
    ("other", is_fickle),
    ("other", is_rewritten),
    ("stale-cache", is_stale),
    ("position", is_misplaced),
    ("no-mask", is_unmasked),
    ("square-mask", is_square),
    ("other", is_inconsistent),
)
### END SOLUTION


def diagnose(model: Model, cfg: Config) -> str:
    """Say what is wrong with a model's cache, by calling it.

        "ok"            nothing: one text has one answer, however it is cut into calls
        "position"      on a past, new tokens are told another position than P … P+T-1 (stage 5)
        "no-mask"       queries see the tokens after them (stage 6)
        "square-mask"   T > 1 queries on a past see keys 0 … j, not 0 … P + j (stage 6)
        "stale-cache"   once there is a past, new keys and values are used in that call and never stored: the
                        cache stops growing
        "other"         anything else that no right model does, an exception or a NaN too

    Args:
        model: any callable `model(idx, past=None) -> (logits (B, T, V), presents)`, presents being L pairs
            (k, v) of (B, H, S, D), which you may look at. It is built in any way, in any floating dtype.
        cfg: its sizes.

    Returns:
        One of the six. Where a model has several of the bugs, one of them.

    One size: a block_size of 4 and a vocabulary of 2 are room enough; no model you get has less.

    The trap: a test that never says "ok" catches every bug. Right models round, each in its own way: one text
    in two cuts differs in the seventh digit of float32. And a bug that hides from one experiment shows in
    another: single tokens never meet a mask, a single call never meets a past, one past length can be the
    right one by chance.
    """
    ### BEGIN SOLUTION
    try:
        with torch.no_grad():
            lab = Lab(model, cfg)
            return next((name for name, holds in EXPERIMENTS if holds(lab)), "ok")
    except Exception:  # whatever a right model never does
        return "other"
    ### END SOLUTION
