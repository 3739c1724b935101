"""How fast the student's own loop over their own model is, by our clock, against the uncached one.

The clock is read here, where nothing of the student's runs; the two are timed in turn; and every timed call
must have written the model's own text, after a prompt that was never seen before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from grader import expect, probe, timing
from grader.hardware import Curve, HardwareProfile
from grader.steps import Loop
from grader.timing import Judged, Speed

LEAST_NEW, MOST_NEW = 10, 31  # tokens that a timed call writes; how many is drawn for every round
PROMPTS = (64, 480)  # tokens before them; the small model has room for 512
TIMES_FASTER = 2.0  # than uncached after the longer prompt: 4 to 15 were measured, 2 and less without a cache
TIMES_FLATTER = 2.5  # the cached curve than the uncached: 4 and more were measured, 1.5 and less without
LEAST_STEPS = 0.1  # of a cached loop's time: less is noise in the prompt's, 0.4 was measured
NEAR_TIE = 1e-3  # of the largest |logit|: how far float32 may be from the best token


class Took(NamedTuple):
    """Seconds of a round: new tokens with the student's cache, without one, our pass over the prompt."""

    cached: float
    uncached: float
    prompt: float
    n_new: int

    @property
    def steps(self) -> float:
        """The cached loop's less the prompt's; ours, since the student's own could be slow on purpose."""
        return max(self.cached - self.prompt, LEAST_STEPS * self.cached)


@dataclass(slots=True)
class Race:
    """The loop with the student's cache against `gpt2.py` without one, after prompts of several lengths."""

    loop: Loop
    small: Any
    rng: Generator
    model: Any = None
    seconds: list[float] = field(default_factory=list)  # a token, after the longest prompt

    def __post_init__(self) -> None:
        self.model = self.loop.model(self.small)

    def round(self, prompts: Sequence[int], backwards: bool) -> dict[int, Took]:
        """Time both loops after prompts of these lengths, and our own pass over the prompt alone."""
        arms: dict[str, timing.Arm] = {}
        n_new = probe.number(self.rng, LEAST_NEW, MOST_NEW)
        for P in prompts:
            arms[f"cached {P}"] = partial(self.cached_s, P, n_new)
            arms[f"uncached {P}"] = partial(self.uncached_s, P, n_new)
            arms[f"prompt {P}"] = partial(self.forward_s, P)
        took = timing.one_round(arms, backwards=backwards)
        return {
            P: Took(took[f"cached {P}"], took[f"uncached {P}"], took[f"prompt {P}"], n_new) for P in prompts
        }

    def cached_s(self, P: int, n_new: int) -> float:
        """Seconds that the loop takes for n_new tokens after a new prompt; fail where they are wrong."""
        idx = probe.ids(self.rng, self.small.cfg, 1, P)
        seconds, got = timing.timed(lambda: self.loop.tokens(self.model, idx, n_new))
        tokens = expect.tensor(got, "the tokens", (1, P + n_new), torch.int64)
        expect.that(
            self._follows(tokens, P), "while it was timed, the loop did not write the model's own text"
        )
        if PROMPTS[-1] == P:
            self.seconds.append(seconds / n_new)
        return seconds

    def uncached_s(self, P: int, n_new: int) -> float:
        """Seconds of n_new passes over the whole text so far, from the first, middle and last of them."""
        lengths = (P, P + n_new // 2, P + n_new - 1)
        return n_new * sum(map(self.forward_s, lengths)) / len(lengths)

    def forward_s(self, n: int) -> float:
        """Seconds of our own pass over n tokens."""
        idx = probe.ids(self.rng, self.small.cfg, 1, n)
        with torch.no_grad():
            return timing.timed(lambda: self.small(idx))[0]

    def _follows(self, tokens: Tensor, P: int) -> bool:
        """Whether every new token is the model's best after those before it, but for float32's noise."""
        if not bool(((tokens >= 0) & (tokens < self.small.cfg.vocab_size)).all()):
            return False
        with torch.no_grad():
            logits = self.small(tokens[:, :-1])[:, P - 1 :]
        said = logits.gather(-1, tokens[:, P:, None])[..., 0]
        return bool((logits.amax(-1) - said <= NEAR_TIE * logits.abs().amax()).all())


def faster(race: Race, metrics: dict[str, Any]) -> None:
    """Fail, or call it inconclusive, unless the cache saves time after the longer prompt."""
    P = PROMPTS[-1]
    cached_s: list[float] = []

    def ratio(backwards: bool) -> float:
        took = race.round((P,), backwards)[P]
        cached_s.append(took.cached / took.n_new)
        return took.uncached / took.cached

    found = timing.judged(ratio, TIMES_FASTER)
    ms = 1000 * timing.estimate(cached_s[1:]).value
    _note(metrics, "times_faster", found)
    metrics[f"ms_a_token_after_{P}"] = round(ms, 3)
    _decide(
        found,
        f"after {P} tokens your loop writes a token in {ms:.2f} ms, {_in_words(found)} as fast as the "
        f"uncached one; it must be {TIMES_FASTER:g} times as fast. The checks before this one count what a "
        "step does in your stages 1 and 2",
    )


def flatter(race: Race, metrics: dict[str, Any]) -> None:
    """Fail, or call it inconclusive, unless the cached time grows less with the text than the uncached."""
    short, long = PROMPTS[0], PROMPTS[-1]
    growths: list[tuple[float, float]] = []

    def ratio(backwards: bool) -> float:
        took = race.round(PROMPTS, backwards)
        with_it, without = took[long].steps / took[short].steps, took[long].uncached / took[short].uncached
        growths.append((with_it, without))
        return without / with_it

    found = timing.judged(ratio, TIMES_FLATTER)
    with_it, without = (timing.estimate(column).value for column in zip(*growths[1:]))
    _note(metrics, "times_flatter", found)
    metrics["growth_cached"], metrics["growth_uncached"] = round(with_it, 2), round(without, 2)
    _decide(
        found,
        f"from {short} to {long} tokens before it, a step of yours grows {with_it:.1f}-fold, an uncached one "
        f"{without:.1f}-fold, {_in_words(found)} as much; it must be {TIMES_FLATTER:g} times. A cached "
        "step does the same at any length, but for reading the cache: what do your stages 1 and 2 do once "
        "for every position, in a step or over the prompt",
    )


def as_profiled(race: Race, profile: HardwareProfile, metrics: dict[str, Any]) -> None:
    """Fail where the profile scores latency and a step is slower than its curve allows."""
    for curve in scored_curves(profile):
        for position, want_ms in zip(curve.positions, curve.ms):
            if MOST_NEW < position <= race.small.cfg.block_size:
                _as_curve(race, profile, position, want_ms, metrics)


def _as_curve(
    race: Race, profile: HardwareProfile, position: int, want_ms: float, metrics: dict[str, Any]
) -> None:
    """Hold the steps before a position against the curve: the loop's time less our own for the prompt."""
    P, most_ms = position - MOST_NEW, profile.slack * want_ms

    def ratio(backwards: bool) -> float:
        took = race.round((P,), backwards)[P]
        return most_ms * (took.n_new - 1) / (1000 * took.steps)

    found = timing.judged(ratio, 1.0)
    ms = most_ms / found.ratio.value
    metrics[f"ms_a_token_at_{position}"] = round(ms, 3)
    _decide(
        found,
        f"at {position} positions a step takes {ms:.2f} ms; on `{profile.name}` it should take {want_ms:g} "
        f"ms, and {profile.slack:g} times as long at most",
    )


def scored_curves(profile: HardwareProfile) -> Iterator[Curve]:
    """The curves that a step is held against where the profile scores it: the small model's in float32."""
    for curve in profile.curves if "latency" in profile.scores else ():
        if curve.cached and curve.model == "small" and curve.dtype == "float32":
            yield curve


def _note(metrics: dict[str, Any], name: str, found: Judged) -> None:
    ratio = found.ratio
    metrics[name] = round(ratio.value, 2)
    metrics[f"{name}_interval"] = f"{ratio.low:.2f} … {ratio.high:.2f}, {ratio.samples} rounds"


def _in_words(found: Judged) -> str:
    ratio = found.ratio
    return f"{ratio.value:.2f} times ({ratio.low:.2f} … {ratio.high:.2f} in {ratio.samples} rounds)"


def _decide(found: Judged, said: str) -> None:
    if found.speed is Speed.INCONCLUSIVE:
        raise timing.Inconclusive(
            f"this machine is too busy to judge: close other programs, and try again. So far, {said}"
        )
    expect.that(found.speed is Speed.PASS, said)
