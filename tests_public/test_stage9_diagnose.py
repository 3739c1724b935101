"""Stage 9: the student's own test, shown models that are right and models that are not."""

import pytest
import torch

from grader import bugged, claims, probe

check = pytest.mark.check


def weights(oracle, rng, dtype=torch.float64, **other):
    """Draw the weights of a small model."""
    sizes = {"n_layer": 2, "n_head": 3, "n_embd": 15, "block_size": 12, "vocab_size": 29} | other
    return probe.hot(oracle.GPT(oracle.Config(**sizes)), rng, dtype)


def diagnosed(student, model, wants, of):
    """Fail unless the student's diagnosis of a model is among the right ones."""
    claims.diagnosis(student.diagnose(model, model.cfg), wants, of)


@check(weight=2, category="right models")
def test_leaves_right_models_alone(student, oracle, rng):
    """Right models are "ok", in float64 and in float32; one that forgets is not"""
    diagnosed(student, bugged.Cached(weights(oracle, rng)), ["ok"], "a right model")
    wide = weights(oracle, rng, torch.float32, n_layer=3, n_embd=24, block_size=14)
    diagnosed(student, bugged.Cached(wide), ["ok"], "a right model in float32")
    forgets = bugged.Cached(weights(oracle, rng), bugged.BUGS["stale-cache"])
    diagnosed(student, forgets, bugged.NAMES[1:], "a model whose cache does not grow")


@check(weight=1, category="one bug at a time")
@pytest.mark.parametrize("name", bugged.BUGS)
def test_names_the_bug(student, oracle, rng, name):
    """The bug is named, and the same model without it is "ok\""""
    ours = weights(oracle, rng)
    diagnosed(student, bugged.Cached(ours, bugged.BUGS[name]), [name], f"a model with the bug {name}")
    diagnosed(student, bugged.Cached(ours), ["ok"], "the same model without that bug")


@check(weight=1, category="a model that raises")
def test_model_that_raises(student, oracle, rng):
    """A model that raises when several tokens come on a past is "other\""""

    def sees(P, T):
        if P and T > 1:
            raise ValueError(f"the mask is ({T}, {T}), the scores are ({T}, {P + T})")
        return bugged.causal(P, T)

    ours = weights(oracle, rng)
    diagnosed(student, bugged.Cached(ours, bugged.Rules(sees=sees)), ["other"], "a model that raises")
    diagnosed(student, bugged.Cached(ours), ["ok"], "the same model, which doesn't raise any more")


@check(weight=1, category="a trained model")
def test_trained_model(student, oracle, rng, small):
    """The small trained model is "ok", and with stage 5's bug it is not"""
    short = bugged.shortened(oracle, small, 12)
    diagnosed(
        student, bugged.Cached(short, bugged.BUGS["position"]), ["position"], "the model with stage 5's bug"
    )
    diagnosed(student, bugged.Cached(short), ["ok"], "the small trained model")
