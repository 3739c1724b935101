"""The documents: what they point to is there, what they tell you to type exists, what they list is whole."""

from __future__ import annotations

import ast
import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from grader import __version__, course_page, overrides
from grader import course as courses
from grader.cli import cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
COURSE = courses.load(ROOT)

LINK = re.compile(r"\]\(([^)\s]+)\)")
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
COMMANDS = {
    "cd",
    "dask",
    "done",
    "echo",
    "export",
    "for",
    "git",
    "grade",
    "make",
    "mkdir",
    "nbgrader",
    "pytest",
    "python",
    "python3",
    "source",
}
COMMANDS |= {"gh", "test", ".venv/bin/pip", "name=$(basename"}
GRADE = re.compile(r"\bgrade ((?:--\S+ )*)([a-z][a-zN0-9]*)(?: ([a-z]\w*))?")
CHECK = re.compile(r"^def test_(\w+)\(", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """The page's headings as GitHub makes anchors of them."""
    found = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_the_example_of_points_by_hand_names_what_is_there() -> None:
    (example,) = re.findall(r"^```text\n(student,.*?)^```", text_of("docs/instructors.md"), re.M | re.S)
    known = {stage.slug: stage.points for stage in COURSE.stages}
    for stage in COURSE.stages:
        for path in COURSE.tests(stage, public_only=True):
            checks = CHECK.findall(path.read_text(encoding="utf-8"))
            known |= {f"{stage.slug}.{check}": stage.points for check in checks}
    for one in overrides.parse(example):
        assert one.points <= known[one.what]


def shell_lines(page: Path) -> Iterator[str]:
    for block in SHELL.findall(page.read_text(encoding="utf-8")):
        yield from (line.strip() for line in block.splitlines() if line.strip())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_shell_line_begins_with_a_known_command(page: Path) -> None:
    assert [line for line in shell_lines(page) if line.split()[0] not in COMMANDS] == []


def known_subcommands(context: click.Context) -> set[str]:
    names = set(cli.list_commands(context))
    dev = cli.get_command(context, "dev")
    assert isinstance(dev, click.Group)
    return names | {f"dev {name}" for name in dev.commands} | {"stageN"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_grade_command_exists(page: Path) -> None:
    """In shell blocks, and where a document has one between backticks."""
    text = page.read_text(encoding="utf-8")
    quoted = [code for code in re.findall(r"`(grade [^`]+)`", FENCE.sub("", text)) if "…" not in code]
    with click.Context(cli, obj=COURSE) as context:
        known = known_subcommands(context)
        for line in [*shell_lines(page), *quoted]:
            for _, command, argument in GRADE.findall(line):
                assert command in known, line
                if command == "dev":
                    assert f"dev {argument}" in known, line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_option_of_a_grade_command_exists(page: Path) -> None:
    with click.Context(cli, obj=COURSE) as context:
        for line in shell_lines(page):
            match = GRADE.search(line)
            if not match:
                continue
            command = cli.get_command(context, match[2])
            if isinstance(command, click.Group) and (match[3] or not command.invoke_without_command):
                command = command.get_command(context, match[3])
            assert command is not None, line
            known = {o for p in [*command.params, *cli.params] for o in (*p.opts, *p.secondary_opts)}
            assert set(re.findall(r"(?<=\s)--[a-z][a-z-]*", line)) <= known, line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_make_target_exists(page: Path) -> None:
    targets = set(re.findall(r"^(\w+):", text_of("Makefile"), re.MULTILINE))
    used = re.findall(r"(?:^|`)make (\w+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(used) <= targets


def test_the_changelog_has_this_version() -> None:
    assert f"## [{__version__}]" in text_of("CHANGELOG.md")


def test_every_change_says_whether_it_is_the_courses_or_the_graders() -> None:
    entries = re.findall(r"^- (.*)$", text_of("CHANGELOG.md"), re.MULTILINE)
    assert [entry for entry in entries if not entry.startswith(("course: ", "grader: "))] == []


def test_the_dependencies_page_names_exactly_what_is_installed() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    wanted = list(itertools.chain(project["dependencies"], *project["optional-dependencies"].values()))
    names = {re.match(r"[\w-]+", requirement)[0] for requirement in wanted} - {project["name"]}  # type: ignore[index]
    assert set(re.findall(r"^- `([\w-]+)`:", text_of("docs/dependencies.md"), re.MULTILINE)) == names


def test_the_table_of_stages_is_fresh() -> None:
    assert course_page.BEGIN in text_of("docs/course.md")
    assert course_page.stale(COURSE) == (), "run `grade dev stubs`"


@pytest.mark.parametrize("stage", COURSE.stages, ids=lambda stage: stage.slug)
def test_the_map_names_every_public_check_and_no_other(stage: courses.Stage) -> None:
    section = re.split(r"^## ", text_of("docs/course.md"), flags=re.MULTILINE)
    (mine,) = (part for part in section if part.lower().startswith(f"stage {stage.slug[5:]}:"))
    cells = [
        row.split("|")[2] for row in mine.splitlines() if row.startswith("| ") and "`" in row.split("|")[2]
    ]
    named = re.findall(r"`(\w+)`", " ".join(cells))
    assert sorted(named) == sorted(CHECK.findall(COURSE.public_tests(stage).read_text(encoding="utf-8")))


@pytest.mark.parametrize("stage", COURSE.stages, ids=lambda stage: stage.slug)
def test_the_map_names_every_category_of_hidden_checks(stage: courses.Stage) -> None:
    tree = ast.parse(COURSE.hidden_tests(stage).read_text(encoding="utf-8"))
    categories = {
        keyword.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "category" and isinstance(keyword.value, ast.Constant)
    }
    page = " ".join(text_of("docs/course.md").split())
    assert {category for category in categories if f"*{category}*" not in page} == set()


def test_the_modules_table_names_every_module() -> None:
    section = text_of("docs/architecture.md").partition("## Modules of `grader/`")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| `([\w/]+\.py)` \|", section, re.MULTILINE))
    grader = ROOT / "grader"
    files = {str(path.relative_to(grader)) for path in grader.rglob("*.py") if path.name != "__init__.py"}
    assert sorted(files - named) == [], "docs/architecture.md lacks a line for each of these"
    assert sorted(named - files) == [], "docs/architecture.md has a line for each of these, which are gone"
