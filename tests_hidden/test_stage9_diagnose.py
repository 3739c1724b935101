"""Stage 9, harsher: families of models, right ones of unusual kinds, bugs at several sizes, and subtle ones.

What the contract leaves open is left open here: a relative of a named bug (positions that are off by one, a
square mask that a single query gets too) may go by that bug's name or be called "other", but not "ok".
"""

import math

import pytest
import torch

from grader import bugged, claims, probe
from grader.bugged import Cached, Rules

check = pytest.mark.check

TINY = {"n_layer": 1, "n_head": 1, "n_embd": 8, "block_size": 10, "vocab_size": 7}
SMALL = {"n_layer": 2, "n_head": 2, "n_embd": 14, "block_size": 13, "vocab_size": 31}
DEEP = {"n_layer": 4, "n_head": 4, "n_embd": 12, "block_size": 14, "vocab_size": 53}


def weights(oracle, rng, sizes=SMALL, dtype=torch.float64):
    """Draw the weights of a small model."""
    return probe.hot(oracle.GPT(oracle.Config(**sizes)), rng, dtype)


def diagnosed(student, model, wants, of):
    """Fail unless the student's diagnosis of a model is among the right ones."""
    claims.diagnosis(student.diagnose(model=model, cfg=model.cfg), wants, of)


def caught(student, ours, rules, wants, of):
    """Fail unless a bug is caught, and the same model without it is left alone."""
    diagnosed(student, Cached(ours, rules), wants, of)
    diagnosed(student, Cached(ours), ["ok"], "the same model without the bug")


# Right models


@check(weight=2, category="right models of other sizes")
def test_right_models_of_other_sizes(student, oracle, rng):
    """Right models of other sizes are "ok": one layer, four, a long context"""
    diagnosed(student, Cached(weights(oracle, rng, TINY)), ["ok"], "a right model of one layer")
    diagnosed(student, Cached(weights(oracle, rng, DEEP)), ["ok"], "a right model of four layers")
    long = SMALL | {"block_size": 30}
    diagnosed(student, Cached(weights(oracle, rng, long)), ["ok"], "a right model of a longer context")
    diagnosed(
        student, Cached(weights(oracle, rng, DEEP), bugged.BUGS["no-mask"]), ["no-mask"], "one without a mask"
    )


@check(weight=2, category="right models with caches of other forms")
def test_right_models_with_other_caches(student, oracle, rng):
    """Right models with caches of other forms are "ok": lists for pairs, views into a bigger buffer"""
    ours = weights(oracle, rng)
    views = Cached(ours, Rules(form=bugged.in_a_buffer))
    diagnosed(student, views, ["ok"], "a right model whose cache is views into a buffer")
    diagnosed(
        student, Cached(ours, Rules(form=lambda k, v: [k, v])), ["ok"], "a right model whose pairs are lists"
    )
    stale = Rules(keeps=bugged.none_kept, form=bugged.in_a_buffer)
    diagnosed(student, Cached(ours, stale), ["stale-cache"], "one whose buffer is never written again")


@check(weight=2, category="right models that round")
def test_right_models_that_round(student, oracle, rng):
    """Right models that round are "ok": float32, and float64 with a softmax in float32"""
    single = weights(oracle, rng, DEEP, torch.float32)
    diagnosed(student, Cached(single), ["ok"], "a right model in float32")
    noisy = Rules(says=bugged.noisy(rng, single.cfg, 2e-6))
    diagnosed(student, Cached(single, noisy), ["ok"], "a right model in float32 that adds in another order")
    double = weights(oracle, rng)
    noisy = Rules(says=bugged.noisy(rng, double.cfg, 3e-7))
    diagnosed(student, Cached(double, noisy), ["ok"], "a right float64 model with a softmax in float32")
    diagnosed(student, Cached(single, bugged.BUGS["position"]), ["position"], "one with wrong positions")


@check(weight=2, category="right models with large and small numbers")
def test_right_models_loud_and_quiet(student, oracle, rng):
    """Right models are "ok" whether their logits are huge or tiny, and bugs are found in either"""
    huge = bugged.loud(weights(oracle, rng, SMALL, torch.float32), 300)
    caught(student, huge, bugged.BUGS["square-mask"], ["square-mask"], "a square mask under huge logits")
    tiny = bugged.loud(weights(oracle, rng), 1 / 300)
    caught(student, tiny, bugged.BUGS["square-mask"], ["square-mask"], "a square mask under tiny logits")


# The bugs that have names


@check(weight=2, category="a bug at several sizes")
@pytest.mark.parametrize("name", bugged.BUGS)
def test_bug_at_several_sizes(student, oracle, rng, name):
    """The bug is named at several sizes and dtypes, and left out it is "ok\""""
    caught(
        student, weights(oracle, rng, TINY), bugged.BUGS[name], [name], f"a model of one layer with {name}"
    )
    for sizes, dtype in ((DEEP, torch.float64), (SMALL, torch.float32)):
        model = Cached(weights(oracle, rng, sizes, dtype), bugged.BUGS[name])
        diagnosed(student, model, [name], f"a model of {sizes['n_layer']} layers with {name}")


@check(weight=2, category="a model at GPT-2's first weights")
def test_bugs_at_first_weights(student, oracle, rng):
    """The bugs are named in an untrained model, too, which says one token over and over"""
    ours = bugged.cold(weights(oracle, rng, SMALL | {"n_embd": 32}))
    for name, rules in bugged.BUGS.items():
        diagnosed(student, Cached(ours, rules), [name], f"an untrained model with {name}")
    diagnosed(student, Cached(ours), ["ok"], "an untrained model without a bug")


# Any further fault


def half(past, present):
    """Keep what was attended to in half precision."""
    return tuple(t.half().to(t.dtype) for t in present)


def swapped(past, present):
    """Keep values for keys and keys for values."""
    return present[1], present[0]


def first_row(past, new):
    """Attend to the first row's past in every row."""
    return torch.cat([past[:1].expand_as(past), new], dim=2)


def quieter(past, new):
    """Once there is a past, attend to new keys and values that are a tenth smaller."""
    return torch.cat([past, new * 0.9 if past.shape[2] else new], dim=2)


def one_ahead(P, T):
    """Query j sees keys 0 … P + j + 1."""
    return bugged.unmasked(P, T).tril(P + 1)


def not_itself(P, T):
    """Once there is a past, query j sees keys 0 … P + j - 1."""
    return bugged.causal(P, T).tril(P - 1) if P else bugged.causal(P, T)


def lately(P, T):
    """Once there is a past, query j sees the last five keys only."""
    return bugged.causal(P, T).triu(P - 4) if P else bugged.causal(P, T)


def nowhere(logits, P):
    """Say NaN once there is a past."""
    return logits * math.nan if P else logits


def louder(logits, P):
    """Say everything a tenth louder once there is a past: no token changes."""
    return logits * 1.1 if P else logits


OTHERS = {
    "nan": Rules(says=nowhere),
    "swapped": Rules(keeps=swapped),
    "precision": Rules(keeps=half),
    "rows": Rules(joins=first_row),
    "quieter": Rules(joins=quieter),
    "one-ahead": Rules(sees=one_ahead),
    "not-itself": Rules(sees=not_itself),
    "window": Rules(sees=lately),
    "scale": Rules(says=louder),
}


@check(weight=1, category="any further fault")
@pytest.mark.parametrize("rules", OTHERS.values(), ids=OTHERS.keys())
def test_any_further_fault(student, oracle, rng, rules):
    """Any further fault is "other", and a right model is "ok\""""
    diagnosed(student, Cached(weights(oracle, rng), rules), ["other"], "a model with a further fault")
    diagnosed(student, Cached(weights(oracle, rng, TINY)), ["ok"], "a right model")


@check(weight=1, category="a model that raises")
def test_models_that_raise(student, oracle, rng):
    """A model that raises is "other", whatever it raises, and wherever"""
    for error, where in ((RuntimeError, lambda P, T: P > 0), (IndexError, lambda P, T: P > 4 and T == 1)):

        def sees(P, T, error=error, where=where):
            if where(P, T):
                raise error("the size of tensor a must match the size of tensor b at dimension 3")
            return bugged.causal(P, T)

        diagnosed(student, Cached(weights(oracle, rng), Rules(sees=sees)), ["other"], "a model that raises")
    diagnosed(student, Cached(weights(oracle, rng, TINY)), ["ok"], "a right model")


@check(weight=1, category="a past that is used twice")
def test_model_with_a_memory_of_its_own(student, oracle, rng):
    """A model that goes on from its own last call, and not from the past it is handed, is not "ok\""""
    ours = weights(oracle, rng)
    diagnosed(
        student, bugged.Remembering(ours), bugged.NAMES[1:], "a model that forgets which past it was handed"
    )
    diagnosed(student, Cached(weights(oracle, rng, TINY)), ["ok"], "a right model")


# Relatives of the bugs that have names


def held(place):
    """Make positions that never leave the model."""
    return lambda P, T: place(P, T).clamp(0, SMALL["block_size"] - 1)


RELATIVES = {
    "position": [
        Rules(positions=lambda P, T: torch.arange(P, P + T) - int(P > 0)),  # one behind
        Rules(positions=lambda P, T: torch.full((T,), P) if P else torch.arange(T)),  # all at one place
        Rules(positions=held(lambda P, T: torch.arange(2 * P, 2 * P + T))),  # the past counted twice
        Rules(
            positions=lambda P, T: torch.arange(P, P + T) if P < 8 else torch.arange(T)
        ),  # on long pasts alone
    ],
    "no-mask": [
        Rules(sees=lambda P, T: bugged.unmasked(P, T) if P else bugged.causal(P, T)),  # on a past alone
        Rules(sees=lambda P, T: bugged.causal(P, T) if P else bugged.unmasked(P, T)),  # without one alone
        Rules(joins=bugged.prepended),  # new keys before the old: the mask then hides old ones
    ],
    "square-mask": [Rules(sees=lambda P, T: bugged.unmasked(P, T).tril())],  # for a single query, too
    "stale-cache": [  # single positions are not stored, several are
        Rules(keeps=lambda past, present: past if present[0].shape[2] - past[0].shape[2] == 1 else present)
    ],
}


@check(weight=1, category="relatives of a bug")
@pytest.mark.parametrize("name", RELATIVES)
def test_relatives_of_a_bug(student, oracle, rng, name):
    """Relatives of a bug are caught, under its name or as "other\""""
    ours = weights(oracle, rng)
    for rules in RELATIVES[name]:
        diagnosed(student, Cached(ours, rules), [name, "other"], f"a model with a relative of {name}")
    diagnosed(student, Cached(weights(oracle, rng, TINY)), ["ok"], "a right model")
