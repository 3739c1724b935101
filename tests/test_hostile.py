"""Attacks: each ends with its own verdict, earns what honest work would, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import resource
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import msgspec
import psutil
import pytest
from rich.console import Console

from grader import course as courses
from grader import report as reports
from grader import samples, submission
from grader.course import Limits, Stage
from grader.errors import SandboxError
from grader.outcome import Outcome, Part, Verdict
from grader.render import html, junit, text
from grader.report import Report
from grader.samples import Hostile, Sample
from grader.sandbox import confine
from grader.sandbox.remote import StudentFault
from grader.scoring import earned_points
from grader.session import Options, Session, missing_layers
from grader.stage_host import StageHost

pytestmark = pytest.mark.skipif(bool(missing_layers()), reason=f"confined can't be had: {missing_layers()}")

COURSE = courses.load(Path(__file__).resolve().parents[1])
SAMPLES = samples.load_all(COURSE, "hostile")
LIMITS = Limits(check_s=1.5, import_s=4.0, memory_mib=256)
PEAK_MIB = 600  # three copies of the longest frame, and room
GONE_S = 5.0
NAMESPACES = {"namespaces": True, "no-namespaces": False}


@dataclass(frozen=True, slots=True)
class Grounds:
    """What attacks are after: secrets in files, the environment and our memory; servers; folders to spoil."""

    root: Path
    secret: str
    tcp: socket.socket
    datagrams: socket.socket

    @property
    def words(self) -> dict[bytes, bytes]:
        """What stands for what in the samples' files."""
        return {
            b"@CANARY@": os.fsencode(self.root),
            b"@ROOT@": os.fsencode(COURSE.root),
            b"@TEMP@": os.fsencode(tempfile.gettempdir()),
            b"@SOCKET@": os.fsencode(self.root / "log.socket"),
            b"@PORT@": str(self.tcp.getsockname()[1]).encode(),
        }

    def fingerprint(self) -> dict[str, tuple[object, ...]]:
        """Everything about every file: content, mode, owner, times, attributes."""
        found = {}
        for path in [self.root, *self.root.rglob("*")]:
            info = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(info.st_mode) else ""
            kept = (info.st_mode, info.st_uid, info.st_gid, info.st_nlink, info.st_mtime_ns, info.st_ctime_ns)
            found[str(path)] = (*kept, content, tuple(os.listxattr(path)))
        return found

    def visitors(self) -> int:
        """How many have connected or written to the servers since last asked."""
        count = 0
        for server in (self.tcp, self.datagrams):
            server.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    if server is self.tcp:
                        server.accept()[0].close()
                    else:
                        server.recv(9)
                    count += 1
        return count


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    root = tmp_path_factory.mktemp("canary")
    secret = f"CANARY-{os.urandom(12).hex()}"
    shutil.copytree(COURSE.root / "tests_hidden", root / "tests_hidden")
    shutil.copytree(COURSE.solutions, root / "solutions")
    for name in ("tests_hidden/seed.secret", "tests_hidden/a.py", "other_submission/stage4_memory.py",
                 "solutions/stage4_answers.py", "home/.ssh/id_rsa", "home/.bashrc"):  # fmt: skip
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {secret}\nprint({secret!r})\n")
        path.chmod(0o644)
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with socket.create_server(("127.0.0.1", 0)) as tcp, datagrams as log:
        log.bind(os.fspath(root / "log.socket"))
        (root / "log.socket").chmod(0o666)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KVGRADE_SECRET", secret)
            patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temp")))
            yield Grounds(root, secret, tcp, log)


class Sessions:
    """A session with and one without namespaces, each made when first asked for and used for every attack."""

    def __init__(self) -> None:
        self.open: dict[str, Session] = {}

    def __getitem__(self, mode: str) -> Session:
        if mode not in self.open:
            options = Options("confined", seed="7", namespaces=NAMESPACES[mode])
            self.open[mode] = Session(COURSE, options)
            assert grade_good(self.open[mode]).exit_status == 0, "warm, and honest work passes"
        return self.open[mode]


@pytest.fixture(scope="module")
def sessions(grounds: Grounds) -> Iterator[Sessions]:
    made = Sessions()
    yield made
    for session in made.open.values():
        session.close()


def limited(slug: str, limits: Limits = LIMITS) -> Stage:
    return msgspec.structs.replace(COURSE.stage(slug), limits=limits)


def grade_good(session: Session) -> Report:
    """Grade an honest submission; its stage is the one that is graded quickest."""
    stage = limited("stage4")
    text = (COURSE.solutions / stage.file).read_bytes()
    return session.grade(submission.of_files("good", {stage.file: text}), [stage])


def grade_attack(session: Session, sample: Sample, grounds: Grounds) -> Report:
    files = {}
    for name, data in sample.handed_in.items():
        for word, meaning in grounds.words.items():
            data = data.replace(word, meaning)
        files[name] = data
    brings_its_own = len(files) > 1
    stage = COURSE.stage(sample.stage) if brings_its_own else limited(sample.stage)
    for slug in stage.runs if brings_its_own else ():
        files.setdefault(COURSE.stage(slug).file, (COURSE.solutions / COURSE.stage(slug).file).read_bytes())
    part = Part.ALL if brings_its_own else Part.UNTIMED
    return session.grade(submission.of_files(sample.name, files), [stage], part)


def expected(hostile: Hostile, report: Report, *, namespaces: bool) -> dict[str, Verdict]:
    """The verdict that a sample declares for every check of its stage.

    Those that run other stages' files are skipped where it brings none.
    """
    verdicts = hostile.verdicts
    if not namespaces and hostile.verdicts_without_namespaces is not None:
        verdicts = hostile.verdicts_without_namespaces
    ids = [name_of(outcome) for outcome in report.stages[0].outcomes]
    assert set(verdicts) <= {"*", *ids}, "a key that names no check"
    runs_others = report.stages[0].slug == "stage3"
    skipped = {n for n, v in found(report).items() if v is Verdict.SKIP} if runs_others else set()
    return {
        name: Verdict.SKIP if name in skipped else verdicts.get(name, verdicts.get("*", Verdict.PASS))
        for name in ids
    }


def found(report: Report) -> dict[str, Verdict]:
    """The verdicts; `inconclusive`, which a loaded machine can make of a `fail`, is no pass either."""
    verdicts = {name_of(outcome): outcome.verdict for outcome in report.stages[0].outcomes}
    return {name: Verdict.FAIL if v is Verdict.INCONCLUSIVE else v for name, v in verdicts.items()}


def name_of(outcome: Outcome) -> str:
    """A check's name in its stage."""
    return outcome.check.id.partition(".")[2]


def honest_points(stage: str, report: Report, verdicts: dict[str, Verdict]) -> float:
    """What those checks earn that honest work passes, and no other."""
    outcomes = [replace(o, verdict=verdicts[name_of(o)]) for o in report.stages[0].outcomes]
    return earned_points(COURSE.stage(stage), outcomes, hidden=True)


def shown(report: Report) -> str:
    """Why checks ended as they did, for a test that fails."""
    outcomes = report.stages[0].outcomes
    return "\n".join(f"{o.check.id} {o.verdict} {o.message} {o.output[-300:]}" for o in outcomes)


def workers(session: Session) -> list[psutil.Process]:
    """Every process below a session's fork server, and every one that has escaped from there."""
    assert session._started
    server = psutil.Process(session._started.process.pid)
    below, command = server.children(recursive=True), server.cmdline()
    escaped = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.ppid() == 1 and process.cmdline() == command:
                escaped.append(process)
    return [p for p in (*below, *escaped) if p != server]


def wait_until_gone(session: Session) -> list[psutil.Process]:
    deadline = time.monotonic() + GONE_S
    while (left := workers(session)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


@pytest.mark.parametrize("mode", NAMESPACES)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_an_attack_earns_what_honest_work_would_and_leaves_nothing_behind(
    sessions: Sessions, grounds: Grounds, sample: Sample, mode: str
) -> None:
    session = sessions[mode]
    before, descriptors = grounds.fingerprint(), psutil.Process().num_fds()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sample.hostile is not None

    report = grade_attack(session, sample, grounds)

    assert wait_until_gone(session) == []
    verdicts = expected(sample.hostile, report, namespaces=NAMESPACES[mode])
    assert found(report) == verdicts, shown(report)
    assert report.earned == honest_points(sample.stage, report, verdicts)
    said = reports.to_json(report)
    assert "PWNED" not in said
    assert grounds.secret not in said
    assert "harsher" not in said, "the hidden checks' source"
    assert grounds.fingerprint() == before
    assert grounds.visitors() == 0
    assert list(Path(tempfile.gettempdir()).iterdir()) == []
    assert psutil.Process().num_fds() == descriptors
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < peak + (PEAK_MIB << 10)
    good = grade_good(session)
    assert (good.exit_status, good.earned) == (0, good.possible), shown(good)


# ---- what lies in a submission beside the stage files


PLANTED = {
    "conftest.py": "import os; os._exit(0)",
    "pytest.ini": "[pytest]\naddopts = --collect-only",
    "sitecustomize.py": "open({marker!r}, 'w')",
    "usercustomize.py": "open({marker!r}, 'w')",
    "pytest.py": "open({marker!r}, 'w')",
    "gpt2.py": "open({marker!r}, 'w'); Config = None",
    "torch.py": "open({marker!r}, 'w')",
    "numpy/__init__.py": "open({marker!r}, 'w')",
    "stage1_attention/__init__.py": "open({marker!r}, 'w')",
    "evil.pth": "import os; open({marker!r}, 'w')",
    "evil-1.0.dist-info/entry_points.txt": "[pytest11]\nevil = evil\n",
    "evil-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n",
    "evil.py": "open({marker!r}, 'w')",
    "stages.toml": "[course]\ntitle = 'mine'\n",
    "tests_hidden/test_stage4_memory.py": "def test_nothing(): pass\n",
    "results/last.json": '{"earned": 30}',
    "test_more.py": "def test_nothing(): pass\n",
}


def test_what_is_planted_beside_a_stage_file_reaches_nobody(
    sessions: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker, stage = tmp_path / "marker", limited("stage4")
    folder = tmp_path / "handed in"
    for name, content in PLANTED.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.replace("{marker!r}", repr(str(marker))))
    shutil.copy(COURSE.solutions / stage.file, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")

    report = sessions["namespaces"].grade(submission.load(folder, COURSE), [stage])

    assert (report.exit_status, report.earned) == (0, stage.points), shown(report)
    assert not marker.exists()


# ---- values from the ends of the earth


ODD_VALUES = COURSE.root / samples.SAMPLES / "odd_values.py"


@pytest.mark.parametrize("stage", COURSE.stages, ids=lambda stage: stage.slug)
def test_no_value_is_taken_for_our_own_fault(sessions: Sessions, stage: Stage) -> None:
    files = {stage.file: ODD_VALUES.read_bytes()}
    for used in COURSE.stages:
        if used.slug in getattr(stage, "uses", ()):
            files[used.file] = (COURSE.solutions / used.file).read_bytes()

    report = sessions["namespaces"].grade(submission.of_files("odd", files), [limited(stage.slug)])

    assert not [o.message for o in report.stages[0].outcomes if o.verdict is Verdict.BROKEN]
    assert report.earned < stage.points / 2


# ---- frames and objects that no submission is needed for


FORGER = """
import gc

import torch

from grader.sandbox import wire


class Model(torch.nn.Module):
    def named_parameters(self, *args, **kwargs):
        class Shapeless:
            shape = [torch.ones(2)]
        return [("weight", Shapeless())]


def send(message):
    encoder = wire.Encoder(str, number=lambda value: next(numbers))
    encoder.encode(message)
    wire.send(line, encoder.out)


def forge(**message):
    global line, numbers
    worker = next(o for o in gc.get_objects() if type(o).__name__ == "Worker")
    line, numbers = worker.connection, iter(range(1, 10**9))
    send({"n": worker.call_number, **message})
    return worker


def junk_beside_a_proper_answer():
    while True:
        worker = forge(op="return", value=7, junk=[[] for _ in range(150_000)])
        worker.call_number = worker._receive()["n"]


def callbacks_without_end(step):
    for _ in range(100):
        worker = forge(op="callback", id=1, args=[], kwargs={"x": torch.ones(1 << 17)})
        worker._receive()


def giant_callback(step):
    forge(op="callback", id=1, args=[torch.ones(1 << 23)], kwargs={})


def overfeed(model):
    try:
        model(torch.zeros(9000, 1, dtype=torch.int64))
    except ValueError as error:
        return str(error)
"""


@pytest.fixture
def forger(sessions: Sessions) -> Iterator[StageHost]:
    """A host whose stage file speaks to the grader as it likes."""
    session, stage = sessions["namespaces"], limited("stage4", Limits(check_s=20.0))
    work = submission.of_files("s", {stage.file: FORGER.encode()})
    launcher = session._open_launcher()
    host = StageHost(COURSE, work, stage, launcher, namespaces=True)
    yield host
    host.close()


def test_a_shape_that_is_none_is_the_workers_fault(forger: StageHost) -> None:
    with pytest.raises(StudentFault) as caught:
        forger.student(None).Model().parameter_shapes()
    assert caught.value.verdict is Verdict.PROTOCOL


def test_junk_beside_proper_answers_is_not_kept_for_ever(forger: StageHost) -> None:
    student, peak = forger.student(None), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(StudentFault, match="bytes returned in one check"):
        for _ in range(100):
            assert student.junk_beside_a_proper_answer() == 7

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < peak + (PEAK_MIB << 10)


def test_what_callbacks_are_called_with_is_not_kept(forger: StageHost) -> None:
    calls = []
    student = forger.student(None)

    student.callbacks_without_end(lambda x: calls.append(x.numel()))

    assert calls == [1 << 17] * 100
    assert forger.channel is not None
    assert len(forger.channel.known) < 3


def test_a_giant_callback_is_refused(forger: StageHost) -> None:
    with pytest.raises(StudentFault, match="a callback with") as caught:
        forger.student(None).giant_callback(lambda x: None)
    assert caught.value.verdict is Verdict.PROTOCOL


def test_no_model_of_ours_is_fed_more_than_it_was_meant_for(forger: StageHost, oracle: ModuleType) -> None:
    model = oracle.GPT(oracle.Config(n_layer=1, n_head=1, n_embd=4, block_size=8, vocab_size=9))

    assert "8192 at most" in forger.student(None).overfeed(model)


def test_what_a_student_says_reaches_no_reader_raw(sessions: Sessions, grounds: Grounds) -> None:
    (sample,) = (s for s in SAMPLES if s.name == "speaks_to_the_terminal")
    report = grade_attack(sessions["namespaces"], sample, grounds)
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    console.print(text.render(report))

    page, xml = html.render(report), junit.render(report)

    assert "<script>alert" not in page
    assert ElementTree.fromstring(xml) is not None
    for shown in (console.file.getvalue(), page, xml):  # type: ignore[attr-defined]
        assert set(shown) & set("\x1b\x07\x00\r\x85\u202e") == set()


def test_a_course_that_workers_could_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "readable_roots", lambda: [COURSE.root.parent])

    with pytest.raises(SandboxError, match="every worker can read"):
        Session(COURSE, Options("confined", seed="7"))


# ---- the level without confinement


def test_the_page_on_security_names_what_the_process_level_does_not_stop() -> None:
    page = (COURSE.root / "docs" / "security.md").read_text(encoding="utf-8")
    _, tried, untried = re.split(r"does \*\*not\*\* stop these|nor these, which are not even tried", page)

    for part, label in ((tried, "open"), (untried.partition("\n\n")[0], "unsafe")):
        names = {s.name for s in SAMPLES if s.hostile and s.hostile.at_process == label}
        assert set(re.findall(r"`([a-z_]+)`", part)) == names


def spawned() -> list[psutil.Process]:
    """Processes of the `process` level whose grader no longer has them."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.ppid() == 1 and "zygote.spawned(" in " ".join(process.cmdline()):
                found.append(process)
    return found


def escapes(sample: Sample, report: Report, grounds: Grounds, before: object, strays: list[int]) -> list[str]:
    """What an attack has got away with."""
    assert sample.hostile is not None
    said = reports.to_json(report)
    left = [process for process in spawned() if process.pid not in strays]
    for process in left:
        process.kill()
    happened = {
        "another verdict": found(report) != expected(sample.hostile, report, namespaces=True),
        "a secret read": grounds.secret in said or "harsher" in said,
        "done what it tried": "PWNED" in said or bool(grounds.visitors()),
        "files changed": grounds.fingerprint() != before,
        "a process left": bool(left),
    }
    return [what for what, has in happened.items() if has]


def test_the_process_level_does_not_stop_these(grounds: Grounds, capsys: pytest.CaptureFixture[str]) -> None:
    tried, lines = [s for s in SAMPLES if s.hostile and s.hostile.at_process == "open"], []
    strays = [process.pid for process in spawned()]
    with Session(COURSE, Options("process", seed="7")) as session:
        for sample in tried:
            before = grounds.fingerprint()
            report = grade_attack(session, sample, grounds)
            got = escapes(sample, report, grounds, before, strays)
            lines.append(f"  {sample.name}: {', '.join(got)}")
            assert got, f"`{sample.name}` is stopped at this level too: say so in its sample"
    untried = sorted(s.name for s in SAMPLES if s.hostile and s.hostile.at_process == "unsafe")
    with capsys.disabled():
        print("\n`process` does not stop:", *lines, f"  not tried: {', '.join(untried)}", sep="\n")
