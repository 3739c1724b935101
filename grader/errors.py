"""Whose fault it was: the four kinds of error that the grader raises."""


class GraderError(Exception):
    """Anything the grader refuses to go on with; one line, fit to be printed."""


class CourseError(GraderError):
    """The course is wrong: manifest, tests, profiles or options (the author's or instructor's to mend)."""


class SubmissionError(GraderError):
    """The submission cannot be read at all (the student's to mend)."""


class SandboxError(GraderError):
    """The worker could not be started or confined (ours, or the machine's)."""


class ProtocolError(GraderError):
    """The worker sent bytes that are not a well-formed reply (a person should look)."""
