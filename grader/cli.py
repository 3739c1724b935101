"""The command line, `grade`: parse, call one function, exit."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from grader import cli_class, cli_course, explain, faults, figures, run
from grader import course as courses
from grader.course import Stage
from grader.errors import CourseError
from grader.faults import Mistake
from grader.options import (
    CONDITIONS,
    FILES,
    MEASURED,
    OUT,
    PUBLIC_ONLY,
    QUIET,
    SUBMISSION,
    VIEW,
    course_of,
    taking,
)
from grader.report import EXIT_FAILED
from grader.run import Wanted

HINT_WIDTH = 88
COMMANDLINE = click.core.ParameterSource.COMMANDLINE
COLOURS = {"ok": "green", "warn": "yellow", "off": "red"}


class Grade(click.Group):
    """A group that has, beside its own commands, one for every stage of the course."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*(stage.slug for stage in _stages_if_any(ctx)), *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        return next((_stage_command(s) for s in _stages_if_any(ctx) if s.slug == cmd_name), None)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            course_of(ctx)  # where there is none, that is what is wrong
            raise _unknown("command or stage", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        stages = [(stage.slug, stage.title) for stage in _stages_if_any(ctx)]
        if stages:
            with formatter.section("Stages"):
                formatter.write_dl(stages)
        with formatter.section("Commands"):
            formatter.write_dl([(name, c.get_short_help_str(60)) for name, c in self.commands.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        try:
            formatter.write(f"\nThe course is at {course_of(ctx).root}\n")
        except CourseError as error:
            formatter.write(f"\nNo stages here: {error}.\n")
            formatter.write("Go into the course's folder, or name it: grade --course PATH stage1\n")

    def invoke(self, ctx: click.Context) -> Any:
        with faults.told(ctx):
            return super().invoke(ctx)


def _stages_if_any(ctx: click.Context) -> Sequence[Stage]:
    try:
        return course_of(ctx).stages
    except CourseError:
        return ()


def _stage(ctx: click.Context, slug: str) -> Stage:
    stages = {stage.slug: stage for stage in course_of(ctx).stages}
    if slug not in stages:
        raise _unknown("stage", slug, list(stages))
    return stages[slug]


def _unknown(kind: str, name: str, known: Sequence[str]) -> Mistake:
    near = difflib.get_close_matches(name, known, n=1)
    guess = f"did you mean `{near[0]}`? " if near else ""
    return Mistake(f"no {kind} `{name}`: {guess}`grade list` names the stages, `grade --help` the commands")


def _stage_command(stage: Stage) -> click.Command:
    @click.command(stage.slug, help=f"{stage.title}.\n\n{stage.summary}")
    @taking(SUBMISSION, *FILES, *CONDITIONS, PUBLIC_ONLY, VIEW, QUIET)
    @click.pass_context
    def command(ctx: click.Context, /, **options: Any) -> None:
        ctx.exit(run.grade(course_of(ctx), [stage], Wanted(**options)))

    return command


@click.group(cls=Grade, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--course",
    type=click.Path(path_type=Path, exists=True),
    envvar="GRADE_COURSE",
    is_eager=True,
    help="The course's folder, or one inside it.  [env: GRADE_COURSE; default: the working folder]",
)
@click.option("--debug", is_flag=True, envvar="GRADE_DEBUG", help="Show tracebacks.  [env: GRADE_DEBUG]")
@click.version_option(package_name="kvgrade", message="%(version)s")
@click.pass_context
def cli(ctx: click.Context, course: Path | None, debug: bool) -> None:
    """Grade the KV cache that you write by hand, a stage at a time.

    Exit status: 0 every check passed, 1 some check did not, 2 usage or an unreadable submission,
    3 the grader's own fault.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


@cli.command("all")
@taking(SUBMISSION, *FILES, *CONDITIONS, PUBLIC_ONLY, VIEW, QUIET)
@click.pass_context
def grade_all(ctx: click.Context, /, **options: Any) -> None:
    """Grade every stage."""
    ctx.exit(run.grade(course_of(ctx), course_of(ctx).stages, Wanted(**options)))


@cli.command("list")
@click.pass_context
def list_stages(ctx: click.Context) -> None:
    """List the stages, their points and files."""
    course = course_of(ctx)
    click.echo(f"{course.title} {course.version}: {sum(stage.points for stage in course.stages):g} points\n")
    for stage in course.stages:
        click.echo(f"{click.style(stage.slug, bold=True)}  {stage.title} ({stage.points:g} points)")
        click.echo(f"    {(course.exercises / stage.file).relative_to(course.root)}")


@cli.command("next")
@taking(*CONDITIONS, QUIET)
@click.pass_context
def grade_next(ctx: click.Context, /, **options: Any) -> None:
    """Find the first stage that is not done yet."""
    ctx.exit(run.grade_next(course_of(ctx), Wanted(public_only=True, **options)))


@cli.command()
@click.argument("stage", required=False)
@taking(*CONDITIONS, PUBLIC_ONLY, VIEW, QUIET)
@click.pass_context
def watch(ctx: click.Context, /, stage: str | None, **options: Any) -> None:
    """Grade again at every save of a stage file, until Ctrl-C."""
    run.watch(course_of(ctx), _stage(ctx, stage) if stage else None, Wanted(**options))


@cli.command()
@click.argument("stage")
@click.option("--level", type=click.IntRange(1, courses.HINTS_PER_STAGE), default=1, show_default=True)
@click.pass_context
def hint(ctx: click.Context, stage: str, level: int) -> None:
    """Show a hint: a nudge, and with --level 3 nearly the answer."""
    text = _stage(ctx, stage).hints[level - 1].strip()
    click.echo(click.wrap_text(text, width=HINT_WIDTH, preserve_paragraphs=True))
    if level < courses.HINTS_PER_STAGE:
        click.echo(f"\nmore: grade hint {stage} --level {level + 1}", err=True)


@cli.command("explain")
@click.argument("stage")
@click.option("--answers", is_flag=True, help="Show the answers along with the questions.")
@click.pass_context
def explain_back(ctx: click.Context, stage: str, answers: bool) -> None:
    """Ask what a stage should have taught; a key shows each answer."""
    questions = explain.load(course_of(ctx))[_stage(ctx, stage).slug]
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    for number, question in enumerate(questions, 1):
        click.echo(("\n" if number > 1 else "") + explain.asked(question, number, HINT_WIDTH))
        if on_terminal and not answers:
            click.pause("\n   (any key shows the answer)")
        if on_terminal or answers:
            click.echo("\n" + explain.answered(question, HINT_WIDTH))
    if not on_terminal and not answers:
        click.echo(f"\nanswers: grade explain {stage} --answers", err=True)


@cli.command()
@taking(*FILES, VIEW, QUIET)
@click.pass_context
def report(ctx: click.Context, /, **options: Any) -> None:
    """Show the last report on exercises/ again; exits 0."""
    run.show_last(course_of(ctx), Wanted(**options))


@cli.command()
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """Say what this machine and this copy of the course can do."""
    from grader.doctor import examine

    for area, state, text in examine(course_of(ctx)):
        click.echo(f"{click.style(f'{state:<4}', fg=COLOURS[state])}  {area}: {text}")


@cli.command()
@click.option(
    "--model", metavar="NAME", default=figures.ALL_MODELS, show_default=True, help="Which; `list` names all."
)
@click.option("--context", metavar="TOKENS", help="Each user's text, as 8192 or 8k.  [default: the longest]")
@click.option("--users", type=click.IntRange(1), default=1, show_default=True, help="Texts at the same time.")
@click.option("--dtype", type=click.Choice(figures.DTYPES), default="bf16", show_default=True)
@click.option("--kv-heads", type=click.IntRange(1), help="Key/value heads in place of the model's own.")
@click.option(
    "--window", metavar="TOKENS", help="Keep the last so many, or all with 0.  [default: the model's]"
)
@click.option("--json", type=OUT, help="Write the answer as JSON.")
def memory(**options: Any) -> None:
    """Work out what weights and a cache need in memory."""
    click.echo(figures.remember(figures.Asked(**options)), nl=False)


@cli.command()
@click.argument(
    "folder", required=False, metavar="[RESULTS]", type=click.Path(path_type=Path, file_okay=False)
)
@click.option("--profile", metavar="NAME", help="Draw this profile's.  [default: the measurement's]")
@click.pass_context
def plot(ctx: click.Context, folder: Path | None, profile: str | None) -> None:
    """Draw what `grade measure` wrote, as SVG and PNG beside it."""
    drawn = figures.plot(course_of(ctx), folder, profile)
    for remark in drawn.remarks:
        click.echo(remark, err=True)
    for path in drawn.written:
        click.echo(f"wrote {path}")


@cli.group(invoke_without_command=True)
@taking(*MEASURED)
@click.option("--from", "source", metavar="FOLDER", help="Measure these stage files.  [default: exercises/]")
@click.option("--calibrate", is_flag=True, help="Write a hardware profile of this machine instead.")
@click.option("--name", metavar="NAME", help="The profile's name, with --calibrate.")
@click.option("--predict", multiple=True, metavar="NAME=X", help="Predict speedup, ms, bytes or batch.")
@click.pass_context
def measure(ctx: click.Context, /, calibrate: bool, predict: Sequence[str], **options: Any) -> None:
    """Predict, then measure: your stages 1 to 4 on your hardware."""
    if ctx.invoked_subcommand is None:
        from grader import predictions

        guesses = {} if calibrate else predictions.collect(predict)  # asked before torch is loaded
        from grader import calibrate as calibration
        from grader import measure

        wanted = measure.Wanted(predictions=guesses, **options)
        calibration.run(course_of(ctx), wanted) if calibrate else measure.run(course_of(ctx), wanted)
    elif any(ctx.get_parameter_source(name) is COMMANDLINE for name in ctx.params):
        raise Mistake(
            f"options of `grade measure {ctx.invoked_subcommand}` go behind `{ctx.invoked_subcommand}`"
        )


@measure.command("hf")
@taking(*MEASURED)
@click.pass_context
def measure_hf(ctx: click.Context, /, **options: Any) -> None:
    """Measure a model of transformers, with use_cache and without."""
    from grader import measure, measure_hf

    measure_hf.run(course_of(ctx), measure.Wanted(**options))


cli.add_command(cli_class.batch)
cli.add_command(cli_class.regrade)
cli.add_command(cli_class.similarity)
cli.add_command(cli_class.export)
cli.add_command(cli_course.seal)
cli.add_command(cli_course.ci)
cli.add_command(cli_course.release)
cli.add_command(cli_course.update)
cli.add_command(cli_course.pack)
cli.add_command(cli_course.notebook)


@cli.group()
def dev() -> None:
    """For course authors: stubs, and the course's check of itself."""


@dev.command()
@click.option("--check", is_flag=True, help="Write nothing; name stale stubs and exit 1 if there are any.")
@click.option("--force", is_flag=True, help="Overwrite files that differ from their stubs.")
@click.pass_context
def stubs(ctx: click.Context, check: bool, force: bool) -> None:
    """Write the stubs in exercises/ from solutions/, and the table of stages from the manifest."""
    from grader import course_page
    from grader.stubs import stale_stubs, write_stubs

    course, root = course_of(ctx), course_of(ctx).root
    stale = stale_stubs(root) if check else write_stubs(root, force=force)
    paths = [*stale, *(course_page.stale(course) if check else course_page.refresh(course))]
    for path in paths:
        click.echo(f"{'stale' if check else 'wrote'} {path.relative_to(root)}")
    ctx.exit(EXIT_FAILED if check and paths else 0)


@dev.command("check")
@click.pass_context
def check_course(ctx: click.Context) -> None:
    """Check the course: manifest, stubs, solutions, samples."""
    from grader.render.prose import plural
    from grader.selfcheck import check

    problems = check(course_of(ctx), progress=lambda text: click.echo(text, err=True))
    for problem in problems:
        click.echo(problem)
    click.echo(plural(len(problems), "problem") if problems else "the course is in order")
    ctx.exit(EXIT_FAILED if problems else 0)


@dev.command()
@click.argument("slug", metavar="STAGE")
@click.option("--name", default="draft", show_default=True, help="Of the file and its function.")
@click.option("--title", default="A new stage", show_default=True, help="What students see.")
@click.pass_context
def new(ctx: click.Context, slug: str, name: str, title: str) -> None:
    """Begin a stage: a whole small one, to be changed."""
    from grader.scaffold import begin

    root = course_of(ctx).root
    for path in begin(course_of(ctx), slug, name, title):
        click.echo(f"wrote {path.relative_to(root)}")
    click.echo(f"`grade dev check` passes; docs/authors.md says how to go on with {slug}")


@dev.command()
@click.argument("slugs", nargs=-1, metavar="[STAGE]...")
@click.option("--seed", default=0, help="Which shuffle, with --minutes.")
@click.option("--minutes", default=0.0, help="Stop after so long; all mutants otherwise.")
@click.option("--jobs", default=0, help="Graders side by side; one a core otherwise.")
@click.option("--require", default=0.0, help="Exit 1 below this share of mutants noticed.")
@click.pass_context
def mutate(
    ctx: click.Context, slugs: tuple[str, ...], seed: int, minutes: float, jobs: int, require: float
) -> None:
    """Break the solutions on purpose and see whether the checks notice."""
    from grader.mutate import run, summary

    course = course_of(ctx)
    stages = [course.stage(slug) for slug in slugs] or course.stages
    score = run(course, stages, seed=seed, budget_s=60 * minutes, jobs=jobs, progress=_mutation_progress)
    click.echo(summary(score))
    ctx.exit(EXIT_FAILED if score.share < require else 0)


def _mutation_progress(done: int, total: int, name: str, survived: bool) -> None:
    if survived or done % 20 == 0 or done == total:
        click.echo(f"{done}/{total}{'  survived: ' + name if survived else ''}", err=True)


def main() -> None:
    """Run `grade`."""
    cli(prog_name="grade")
