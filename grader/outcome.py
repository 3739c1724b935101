"""What a check is and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """The eleven ways a check can end (CONTRACT, section 5)."""

    PASS = "pass"
    FAIL = "fail"
    TODO = "todo"
    RAISED = "raised"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASH = "crash"
    PROTOCOL = "protocol"
    SKIP = "skip"
    INCONCLUSIVE = "inconclusive"
    BROKEN = "broken"

    @property
    def counts_against(self) -> bool:
        """Whether this verdict alone makes the exit status 1."""
        return self not in (Verdict.PASS, Verdict.SKIP, Verdict.INCONCLUSIVE, Verdict.BROKEN)


class Visibility(StrEnum):
    """Whether a student may see a check's source and details."""

    PUBLIC = "public"
    HIDDEN = "hidden"


class Part(StrEnum):
    """Which of the checks to run: all of them, those that are not by the clock, or those that are."""

    ALL = "all"
    UNTIMED = "untimed"
    TIMED = "timed"


@dataclass(frozen=True, slots=True)
class Check:
    """One graded test: `id` is `stage1.name_of_the_test`, `title` its docstring's first line."""

    id: str
    title: str
    visibility: Visibility = Visibility.PUBLIC
    weight: float = 1.0
    category: str = ""

    @property
    def function(self) -> str:
        """The test's name, which all its parameters share: `name_of_the_test`."""
        return self.id.partition(".")[2].partition("[")[0]

    @property
    def variant(self) -> str:
        """The name of a parameter, which tells of the inputs; empty where there is none."""
        return self.id.partition("[")[2].removesuffix("]")

    @property
    def shared_title(self) -> str:
        """The title without the parameter that it ends in."""
        return self.title.removesuffix(f" ({self.variant})") if self.variant else self.title


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a check: `message` teaches, `output` is what the student's code printed meanwhile."""

    check: Check
    verdict: Verdict
    seconds: float = 0.0
    message: str = ""
    traceback: str = ""
    output: str = ""
    metrics: dict[str, float | int | str | bool] = field(default_factory=dict)
