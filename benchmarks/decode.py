"""Decode the small model with the reference solution, a preallocated cache and transformers, in turn.

    python benchmarks/decode.py --rounds 15 --n-new 500

Same weights, same prompt, greedy, and the same tokens or it stops. Every round runs all of them, every other
round backwards; a ratio is of the same round, and an interval covers their median with 95 %.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import click
import torch

from grader import bench, measure, measure_hf, subject, timing
from grader import course as courses

ROOT = Path(__file__).resolve().parents[1]
PREALLOCATED = (
    ROOT / "tests" / "submissions" / "correct" / "present_views_of_a_buffer" / "stage1_attention.py"
)
CPU = torch.device("cpu")


@click.command()
@click.option("--rounds", default=15, show_default=True)
@click.option("--n-new", default=500, show_default=True)
@click.option("--threads", default=1, show_default=True, help="Of torch; two spin where cores are busy.")
def main(rounds: int, n_new: int, threads: int) -> None:
    """Print seconds and ratios; exit 1 where a goal is clearly missed."""
    torch.set_num_threads(threads)
    course = courses.load(ROOT)
    reference = subject.load(course, course.solutions, "small", CPU, torch.float32)
    stage1 = subject.imported(PREALLOCATED, "stage1")
    roomy = subject.with_weights_of(reference.oracle, stage1).eval().requires_grad_(False)
    models: dict[str, subject.Subject] = {
        "reference": reference,
        "preallocated": dataclasses.replace(reference, model=roomy),
        "transformers": measure_hf.load(str(course.exercises / "small"), CPU, torch.float32),
    }
    shape = reference.shape
    prompt = bench.sample_text(shape.context, shape.vocab_size, measure.PROMPT, CPU)[:, : measure.PROMPT]
    texts = {name: model.write(prompt, n_new, cached=True)[0] for name, model in models.items()}
    for name, text in texts.items():
        if not torch.equal(text, texts["reference"]):
            sys.exit(f"{name} writes other tokens than the reference")

    def arm(model: subject.Subject) -> timing.Arm:
        return lambda: timing.timed(lambda: model.write(prompt, n_new, cached=True))[0]

    seconds = timing.interleaved({name: arm(model) for name, model in models.items()}, rounds, warmup=1)
    click.echo(f"{n_new} new tokens after {measure.PROMPT}, {threads} thread(s), {rounds} rounds")
    for name, samples in seconds.items():
        e, token = timing.estimate(samples), 1e3 * timing.estimate(samples).value / n_new
        click.echo(f"{name:>12}: {e.value:.3f} s ({e.low:.3f} … {e.high:.3f}), {token:.2f} ms a token")
    missed = False
    for slower, faster in (("transformers", "reference"), ("reference", "preallocated")):
        ratio = timing.estimate([s / f for s, f in zip(seconds[slower], seconds[faster], strict=True)])
        click.echo(f"{slower} / {faster}: {ratio.value:.3f} ({ratio.low:.3f} … {ratio.high:.3f})")
        missed |= ratio.high < 1
    sys.exit(missed)


if __name__ == "__main__":
    main()
