"""Renderings: what is told, what is withheld, and that nothing a student wrote gets out of its place."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import io
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from grader.outcome import Check, Outcome, Verdict, Visibility
from grader.render import html as html_page
from grader.render import junit, prose, summary, text
from grader.render.summary import Manner, blocks
from grader.report import Machine, Report, StageResult, SubmissionInfo, student_view

settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")  # a busy machine is no failure

SECRET = "tok3n-of-the-hidden-test"
SYNTAX = "SyntaxError: '(' was never closed, `stage1_attention.py:12`"
HOSTILE = "</style></script><script>alert(1)</script>\x1b[31m\x00[bold]{{ 7*7 }}\u202e\ud800"


def ended(
    verdict: Verdict = Verdict.FAIL,
    message: str = "",
    visibility: Visibility = Visibility.PUBLIC,
    name: str = "a",
) -> Outcome:
    check = Check(f"stage1.{name}", f"The title of {name}", visibility, 1.0, "positions")
    return Outcome(check, verdict, 0.25, message)


def hidden(verdict: Verdict = Verdict.FAIL, name: str = "h") -> Outcome:
    return replace(
        ended(verdict, SECRET, Visibility.HIDDEN, name),
        traceback=SECRET,
        output=SECRET,
        metrics={SECRET: 1.5},
    )


def make_report(*stages: tuple[Outcome, ...], earned: float = 3.5, hidden_points: float = 4.0) -> Report:
    results = tuple(
        StageResult(f"stage{n}", f"Stage {n}", f"stage{n}_x.py", earned, 12.0, ran, True, hidden_points)
        for n, ran in enumerate(stages, 1)
    )
    return Report(
        submission=SubmissionInfo("ada", "d1ge57"),
        course_title="The KV cache, by hand",
        course_version="0.1",
        course_digest="c0ur5e",
        grader_version="0.1.0",
        seed_id="public-5eed",
        machine=Machine("Linux", "Some CPU", 2, 7.5, "3.11.7", "2.13.0", 0.5),
        profile="",
        isolation="confined",
        layers={"landlock": "on"},
        public_only=False,
        started="2026-01-02T03:04:05Z",
        seconds=2.5,
        stages=results,
    )


def shown(report: Report, *, width: int = 100, colour: bool = False) -> str:
    """The report as the terminal has it."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        no_color=not colour,
        highlight=False,
        _environ={},
    )
    console.print(text.render(report))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


# ---- what is told together


some_outcomes = st.lists(
    st.builds(
        ended,
        st.sampled_from([Verdict.PASS, Verdict.FAIL, Verdict.TODO, Verdict.RAISED]),
        st.sampled_from(["", "one", "two"]),
        st.sampled_from(Visibility),
    ),
    max_size=7,
)


@given(some_outcomes)
def test_what_is_shown_of_a_running_stage_only_grows(outcomes: list[Outcome]) -> None:
    whole = blocks(outcomes)

    for end in range(len(outcomes) + 1):
        so_far = blocks(outcomes[:end], finished=False)
        assert whole[: len(so_far)] == so_far


@given(some_outcomes)
def test_every_check_is_told_exactly_once(outcomes: list[Outcome]) -> None:
    told = [outcome for block in blocks(outcomes) for outcome in block.outcomes]

    assert len(told) == len(outcomes)
    assert all(outcome in told for outcome in outcomes)


def test_checks_with_one_cause_are_told_once() -> None:
    ran = (
        ended(Verdict.RAISED, SYNTAX, name="a"),
        ended(Verdict.RAISED, SYNTAX, name="b"),
        hidden(Verdict.RAISED),
    )

    out = shown(student_view(make_report(ran)))

    assert out.count("never closed") == 1
    assert "3 checks, one cause" in out


def test_a_cause_shared_by_some_checks_is_not_repeated_beneath_each() -> None:
    out = shown(make_report((ended(message="same fault"), ended(Verdict.PASS), ended(message="same fault"))))

    assert out.count("same fault") == 1
    assert "the same as above" in out


def test_checks_not_written_yet_are_one_calm_line() -> None:
    waiting = tuple(
        ended(Verdict.TODO, f"`stage1_x.py:{n}` is to be written", name=f"t{n}") for n in (31, 47, 60)
    )

    out = shown(make_report(waiting))

    assert "not written yet: 3 checks waiting, begin at stage1_x.py:31" in out
    assert "✗" not in out
    assert "is to be written" not in out


def test_a_missing_file_is_said_in_that_line() -> None:
    waiting = (ended(Verdict.TODO, "`stage1_x.py` is not in the submission"),) * 3

    out = shown(student_view(make_report((*waiting, hidden(Verdict.TODO)))))

    assert "4 checks waiting, `stage1_x.py` is not in the submission" in out


def test_one_check_alone_is_told_by_its_title() -> None:
    assert [block.manner for block in blocks([ended(message="m")])] == [Manner.SINGLE]


# ---- the terminal


def test_a_check_shows_its_sign_title_seconds_and_message() -> None:
    out = shown(make_report((ended(Verdict.PASS, name="a"), ended(message="expected 3, got `4`", name="b"))))

    assert re.search(r"✓ The title of a +0\.25 s", out)
    assert re.search(r"✗ The title of b +0\.25 s\n +expected 3, got `4` *\n", out)


def test_the_students_line_stands_out() -> None:
    out = shown(make_report((ended(message="wrong at `stage1_x.py:57` somehow"),)), colour=True)

    assert re.search(r"\x1b\[1;36mstage1_x\.py:57\x1b\[0m", out)


def test_a_message_is_not_shown_beneath_a_pass() -> None:
    assert "never mind" not in shown(make_report((ended(Verdict.PASS, "never mind"), ended())))


def test_what_the_students_code_printed_is_shown_from_its_end() -> None:
    printed = "".join(f"line {n}\n" for n in range(100))

    out = shown(make_report((replace(ended(), output=printed), ended(Verdict.PASS))))

    assert "│ line 99" in out
    assert "line 91\n" not in out


@pytest.mark.parametrize("verdict", Verdict)
def test_a_hidden_check_shows_a_student_title_verdict_and_category_only(verdict: Verdict) -> None:
    report = student_view(make_report((ended(Verdict.PASS), hidden(verdict), ended(message="other"))))

    for out in (shown(report), html_page.render(report), junit.render(report)):
        assert SECRET not in out
    if verdict is not Verdict.TODO:
        assert "The title of h  hidden" in shown(report)


def test_an_instructor_sees_a_hidden_check_in_full() -> None:
    report = make_report((ended(Verdict.PASS), hidden()))

    for out in (shown(report), html_page.render(report), junit.render(report)):
        assert SECRET in out


def test_a_public_run_says_that_hidden_checks_were_not_run() -> None:
    out = " ".join(shown(make_report((ended(Verdict.PASS),))).split())

    assert "All PUBLIC checks passed; hidden checks, 4 more points, were not run." in out


def test_passing_all_public_checks_does_not_sound_like_passing_all() -> None:
    report = student_view(make_report((ended(Verdict.PASS), hidden(), hidden(Verdict.PASS))))

    out = " ".join(shown(report).split())

    assert "All PUBLIC checks passed; 1 of 2 hidden checks did not pass; their details are not shown." in out


def test_a_stage_without_hidden_checks_speaks_of_none() -> None:
    assert "hidden" not in shown(make_report((ended(Verdict.PASS),), hidden_points=0.0))


@pytest.mark.parametrize(
    ("verdict", "advice"),
    [
        (Verdict.PASS, "`grade next`"),
        (Verdict.TODO, "Write `stage1_x.py`"),
        (Verdict.FAIL, "`grade hint stage1`"),
        (Verdict.PROTOCOL, "a person should look"),
        (Verdict.BROKEN, "`grade doctor`"),
        (Verdict.INCONCLUSIVE, "too noisy"),
        (Verdict.SKIP, "`grade next`"),
    ],
)
def test_the_end_says_what_to_do_next(verdict: Verdict, advice: str) -> None:
    assert advice in summary.advice(make_report((ended(verdict),)))


@pytest.mark.parametrize(
    ("verdict", "messages", "advice"),
    [
        (Verdict.TODO, ("stage2_x.py:46: NotImplementedError", "stage1_x.py:7: "), "Write `stage1_x.py` "),
        (
            Verdict.TODO,
            ("stage2_x.py:46: NotImplementedError", ""),
            "Write `stage2_x.py` while `grade watch stage2`",
        ),
        (Verdict.FAIL, ("mend that in stage 1 or 2",), "Look into stage 1 or 2, then `grade stage3` again"),
        (Verdict.FAIL, ("mend that in stage 1 or 2", "3 calls"), "Mend `stage3_x.py`, then `grade stage3`"),
    ],
)
def test_the_end_names_the_file_that_is_to_blame(
    verdict: Verdict, messages: tuple[str, ...], advice: str
) -> None:
    outcomes = tuple(ended(verdict, message) for message in messages)
    assert advice in summary.advice(make_report((), (), outcomes))


def test_several_stages_have_a_total() -> None:
    out = shown(make_report((ended(),), (ended(),)))

    assert "total  7 of 24 points" in out
    assert "3.5 of 12 points" in out


def test_what_a_student_wrote_is_not_read_as_markup_or_escapes() -> None:
    out = shown(make_report((ended(message=HOSTILE, name=HOSTILE), ended(message=HOSTILE + "x"))))

    assert "[bold]" in out
    assert not re.search(r"[\x00\x1b\u202e\ud800]", out)


@pytest.mark.parametrize("width", [20, 40, 79, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    report = make_report((ended(message="long words " * 30), hidden(), ended(Verdict.TODO)))

    assert all(len(line) <= width for line in shown(report, width=width).splitlines())


def test_signs_can_be_plain_ascii() -> None:
    console = Console(file=io.StringIO(), width=80, _environ={})
    console.print(text.render(make_report((ended(Verdict.PASS), ended())), glyphs=text.ASCII))

    assert isinstance(console.file, io.StringIO)
    assert "+ The title" in console.file.getvalue()
    assert not re.search("[✓✗]", console.file.getvalue())


# ---- HTML


class Page(html.parser.HTMLParser):
    """Collects a page's tags, attributes and text, and checks that tags nest."""

    VOID = frozenset({"meta", "input"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def hostile_report() -> Report:
    outcome = replace(
        ended(message=HOSTILE, name=HOSTILE), output=HOSTILE, traceback=HOSTILE, metrics={HOSTILE: HOSTILE}
    )
    report = make_report((outcome, ended(Verdict.PASS)), (ended(Verdict.TODO),))
    return replace(report, submission=SubmissionInfo(HOSTILE, HOSTILE, (HOSTILE,)), notes=(HOSTILE,))


def test_the_page_escapes_what_a_student_wrote() -> None:
    source = html_page.render(hostile_report())
    page = Page(source)

    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in "".join(page.words)
    assert "{{ 7*7 }}" in "".join(page.words)
    assert not re.search(r"[\x00\x1b\u202e\ud800]", source)


def test_the_page_needs_nothing_from_outside() -> None:
    page = Page(html_page.render(hostile_report()))

    assert not {"script", "link", "img", "iframe", "base", "form"} & set(page.tags)
    assert all(value and value.startswith("#") for name, value in page.attributes if name in ("href", "src"))
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]


def test_the_pages_policy_allows_its_own_style_and_nothing_else() -> None:
    source = html_page.render(make_report((ended(),)))
    (style,) = re.findall(r"<style>(.*?)</style>", source, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()

    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"

    page = Page(source)
    assert ("content", policy) in page.attributes
    assert "url(" not in style
    assert "@import" not in style


PLOT = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9">'
    '<title id="t">Drawn</title><defs><path id="p" d="M 0 0"/></defs><use xlink:href="#p" fill="red"/></svg>'
)


def test_the_page_has_the_plots_that_it_was_given() -> None:
    page = Page(html_page.render(make_report((ended(),)), [PLOT, PLOT.replace("Drawn", "Drawn too")]))

    assert page.tags.count("figure") == 2
    assert {"Drawn", "Drawn too", "Your measurements"} <= set(page.words)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]
    assert any(value and value.startswith("default-src 'none';") for _, value in page.attributes)


def test_the_page_without_plots_does_not_speak_of_them() -> None:
    assert "Your measurements" not in html_page.render(make_report((ended(),)))


def test_the_page_takes_no_svg_of_another_kind() -> None:
    with pytest.raises(ValueError, match="<script>"):
        html_page.render(make_report((ended(),)), [PLOT.replace("<defs>", "<script/><defs>")])


def test_the_page_names_seed_machine_and_isolation() -> None:
    words = "".join(Page(html_page.render(make_report((ended(),)))).words)

    for fact in ("public-5eed", "Some CPU, 2 cores", "confined (landlock: on)", "d1ge57", "torch 2.13.0"):
        assert fact in words


def test_the_page_filters_by_each_verdict_that_occurred() -> None:
    page = Page(html_page.render(make_report((ended(), ended(Verdict.PASS), ended(Verdict.TODO)))))

    radios = [
        value for name, value in page.attributes if name == "id" and value and value.startswith("show-")
    ]
    assert radios == ["show-all", "show-pass", "show-fail", "show-todo"]


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_has_a_filter_in_the_style(verdict: Verdict) -> None:
    css = (Path(html_page.__file__).parent / "report.css").read_text(encoding="utf-8")

    assert f"body:has(#show-{verdict}:checked) .check:not(.{verdict})" in css


# ---- JUnit


def test_junit_counts_and_names_every_check() -> None:
    ran = tuple(ended(verdict, name=str(verdict)) for verdict in Verdict)

    (suite,) = ET.fromstring(junit.render(make_report(ran))).findall("testsuite")

    assert {k: suite.get(k) for k in ("name", "tests", "failures", "errors", "skipped")} == {
        "name": "stage1",
        "tests": str(len(Verdict)),
        "failures": "2",
        "errors": "6",
        "skipped": "2",
    }
    assert len({(case.get("classname"), case.get("name")) for case in suite.iter("testcase")}) == len(Verdict)


def test_junit_is_legal_xml_whatever_a_student_wrote() -> None:
    root = ET.fromstring(junit.render(hostile_report()))

    (failure, *_) = root.iter("failure")
    assert failure.text is not None
    assert "<script>alert(1)</script>" in failure.text


@given(st.text(st.characters(exclude_categories=())))
def test_junit_can_be_parsed_with_any_text(anything: str) -> None:
    outcome = replace(ended(message=anything), output=anything, traceback=anything)

    ET.fromstring(junit.render(make_report((outcome,))))


# ---- prose


@given(st.text(st.characters(exclude_categories=())))
def test_printable_text_is_stable_and_can_be_encoded(anything: str) -> None:
    cleaned = prose.printable(anything)

    assert prose.printable(cleaned) == cleaned
    cleaned.encode("utf-8")
    assert "\x1b" not in cleaned


@given(st.text())
def test_parts_lose_nothing_but_backticks(message: str) -> None:
    joined = "".join(part for _, part in prose.parts(message))

    assert joined.replace("`", "") == prose.printable(message).replace("`", "")


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("at `stage1_x.py:57` it", "stage1_x.py:57"),
        ("File sub/dir/a.py:3: bad", "sub/dir/a.py:3"),
        ("no place: `x.py` or py:3", ""),
    ],
)
def test_the_first_place_is_found(message: str, place: str) -> None:
    assert prose.first_place(message) == place


def test_colour_codes_are_taken_out_whole() -> None:
    assert prose.printable("\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x1b\\link\x07") == "red link"


@pytest.mark.parametrize(
    ("value", "written"), [(12.0, "12"), (3.5, "3.5"), (6.67, "6.67"), (0.0, "0"), (100.0, "100")]
)
def test_points_are_written_without_trailing_zeros(value: float, written: str) -> None:
    assert prose.points(value) == written
