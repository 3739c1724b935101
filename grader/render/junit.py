"""JUnit XML (the xunit2 dialect) from our own outcomes, never from pytest's text."""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

from grader.outcome import Outcome, Verdict
from grader.render.prose import one_line, printable
from grader.report import Report, StageResult

ELEMENTS = {
    Verdict.FAIL: "failure",
    Verdict.TODO: "failure",
    Verdict.SKIP: "skipped",
    Verdict.INCONCLUSIVE: "skipped",
}


def render(report: Report) -> str:
    """The report as one XML document: a suite a stage, a case a check.

    `todo` is a failure, since it costs points; `skip` and `inconclusive` are skipped; any other end is an
    error.
    """
    root = ET.Element("testsuites", name=one_line(report.course_title))
    for stage in report.stages:
        root.append(_suite(stage, report))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(stage: StageResult, report: Report) -> ET.Element:
    kinds = [ELEMENTS.get(o.verdict, "error") for o in stage.outcomes if o.verdict is not Verdict.PASS]
    suite = ET.Element(
        "testsuite",
        name=stage.slug,
        tests=str(len(stage.outcomes)),
        failures=str(kinds.count("failure")),
        errors=str(kinds.count("error")),
        skipped=str(kinds.count("skipped")),
        time=f"{math.fsum(o.seconds for o in stage.outcomes):.3f}",
        timestamp=one_line(report.started),
    )
    properties = ET.SubElement(suite, "properties")
    facts = {
        "earned": stage.earned,
        "possible": stage.possible,
        "submission": report.submission.id,
        "seed": report.seed_id,
        "isolation": report.isolation,
    }
    for name, value in facts.items():
        ET.SubElement(properties, "property", name=name, value=one_line(str(value)))
    suite.extend(_case(outcome) for outcome in stage.outcomes)
    return suite


def _case(outcome: Outcome) -> ET.Element:
    check = outcome.check
    case = ET.Element(
        "testcase", classname=one_line(check.id), name=one_line(check.title), time=f"{outcome.seconds:.3f}"
    )
    if outcome.verdict is Verdict.PASS:
        return case
    message = one_line(outcome.message) or str(outcome.verdict)
    ended = ET.SubElement(
        case, ELEMENTS.get(outcome.verdict, "error"), type=str(outcome.verdict), message=message
    )
    ended.text = printable("\n\n".join(filter(None, (outcome.message, outcome.traceback))))
    if outcome.output:
        ET.SubElement(case, "system-out").text = printable(outcome.output)
    return case
