"""Submissions as files: links, devices, bombs and odd names are refused, and nothing is unpacked."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import resource
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from grader import archive, submission
from grader import course as courses
from grader.errors import SubmissionError

COURSE = courses.load(Path(__file__).resolve().parents[1])
STAGE = COURSE.stages[0].file
HONEST = b"x = 1\n"
PEAK_MIB, SLOW_S = 400, 10.0
SECRET = "CANARY"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """What a link would lead to: somebody else's stage file."""
    path = tmp_path / "other student" / STAGE
    path.parent.mkdir()
    path.write_text(SECRET)
    return path


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as packed:
        for name, content in members:
            packed.writestr(name, content)
    return buffer.getvalue()


def locked(packed: bytes) -> bytes:
    """The same zip file, its one member marked as encrypted where it stands and in the table."""
    marked = bytearray(packed)
    marked[6] |= 1
    marked[packed.index(b"PK\x01\x02") + 8] |= 1
    return bytes(marked)


def tarred(*members: tuple[str, bytes], **special: bytes) -> bytes:
    """A gzipped tar file of plain members, and of `special` ones that lead to `/etc/passwd`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
        for kind in special.values():
            info = tarfile.TarInfo(STAGE)
            info.type, info.linkname, info.devmajor, info.devminor = kind, "/etc/passwd", 1, 5
            packed.addfile(info)
    return buffer.getvalue()


def header(name: bytes, size: int, kind: bytes) -> bytes:
    """A tar header that says whatever it likes."""
    info = tarfile.TarInfo(name.decode())
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def link_member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, 0o120777 << 16
    return info


ZEROS = bytes(100 << 20)
REFUSED: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "zip: one member of 100 MB": ("a.zip", lambda: zipped((STAGE, ZEROS)), "more than 1048576 bytes"),
    "zip: bzip2, which unpacks without bound": (
        "a.zip", lambda: zipped((STAGE, ZEROS), method=zipfile.ZIP_BZIP2), "unusual way"),
    "zip: LZMA": ("a.zip", lambda: zipped((STAGE, HONEST), method=zipfile.ZIP_LZMA), "unusual way"),
    "zip: 100,000 members": (
        "a.zip", lambda: zipped(*((f"{n}", b"") for n in range(100_000)), method=zipfile.ZIP_STORED),
        "more than 20000 members"),
    "zip: damaged content": (
        "a.zip", lambda: zipped((STAGE, HONEST * 99)).replace(b"x", b"y"), "not a readable archive"),
    "zip: garbage": ("a.zip", lambda: b"PK\x03\x04" + bytes(range(256)) * 99, "not a readable archive"),
    "zip: cut off": ("a.zip", lambda: zipped((STAGE, HONEST * 999))[:-40], "not a readable archive"),
    "zip: an archive in it": ("a.zip", lambda: zipped(("a.zip", zipped((STAGE, HONEST)))), "no stage file"),
    "zip: a link": ("a.zip", lambda: zipped((link_member(STAGE), b"/etc/passwd")), "no stage file"),
    "zip: upwards": ("a.zip", lambda: zipped((f"../{STAGE}", HONEST)), "not taken"),
    "zip: absolute": ("a.zip", lambda: zipped((f"/tmp/{STAGE}", HONEST)), "not taken"),
    "zip: backslashes": ("a.zip", lambda: zipped((f"..\\{STAGE}", HONEST)), "not taken"),
    "zip: a name with a newline": ("a.zip", lambda: zipped((f"a\n/{STAGE}", HONEST)), "not taken"),
    "zip: locked": ("a.zip", lambda: locked(zipped((STAGE, HONEST))), "password"),
    "zip: plain text": ("a.zip", lambda: HONEST * 99, "not a readable archive"),
    "zip: a stage file by another name": (
        "a.zip", lambda: zipped(("my_stage1_attention.py.py", HONEST)), r"there is `my_stage1_attention"),
    "tar: zeros": ("a.tar.gz", lambda: gzip.compress(ZEROS, 1), "unpacked"),
    "tar: a symbolic link": ("a.tar.gz", lambda: tarred(a=tarfile.SYMTYPE), "no stage file"),
    "tar: a hard link": ("a.tar.gz", lambda: tarred(a=tarfile.LNKTYPE), "no stage file"),
    "tar: a device": ("a.tar.gz", lambda: tarred(a=tarfile.CHRTYPE), "no stage file"),
    "tar: a pipe": ("a.tgz", lambda: tarred(a=tarfile.FIFOTYPE), "no stage file"),
    "tar: upwards": ("a.tar.gz", lambda: tarred((f"../../{STAGE}", HONEST)), "not taken"),
    "tar: absolute": ("a.tar.gz", lambda: tarred((f"/{STAGE}", HONEST)), "not taken"),
    "tar: 100,000 members": (
        "a.tar", lambda: header(b"a", 0, b"0") * 100_000, "more than 20000 members"),
    "tar: a name announced with 7 GB": (
        "a.tar", lambda: header(b"././@LongLink", 7 << 30, b"L") + bytes(1024), "cut off"),
    "tar: long names in each other": (
        "a.tar", lambda: (header(b"././@LongLink", 1, b"L") + b"x" + bytes(511)) * 9000, "no stage file"),
    "tar: attributes that are read for hours": (
        "a.tar", lambda: header(b"x", 1_000_000, b"x") + b"5 aa\n" * 200_000 + bytes(448), "no stage file"),
    "tar: cut off": ("a.tar", lambda: gzip.decompress(tarred((STAGE, HONEST * 999)))[:1000], "cut off"),
    "tar: no gzip inside": ("a.tar.gz", lambda: bz2.compress(HONEST), "not a readable archive"),
    "tar: empty": ("a.tar", lambda: b"", "not a readable archive"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_hostile_archive_is_refused_in_little_time_and_memory(case: str, tmp_path: Path) -> None:
    name, build, words = REFUSED[case]
    path = tmp_path / name
    path.write_bytes(build())
    begun, peak = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(SubmissionError, match=words):
        submission.load(path, COURSE)

    assert time.monotonic() - begun < SLOW_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < peak + (PEAK_MIB << 10)
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tgz", "a.tar"])
@pytest.mark.parametrize("folder", ["", "my work/", "é" * 9 + "/"])
def test_an_honest_archive_is_read(name: str, folder: str, tmp_path: Path) -> None:
    members = ((f"{folder}{STAGE}", HONEST), (f"{folder}notes.txt", b"hello"), ("__MACOSX/._x", b""))
    packed = zipped(*members) if name == "a.zip" else tarred(*members)
    (tmp_path / name).write_bytes(gzip.decompress(packed) if name == "a.tar" else packed)

    assert submission.load(tmp_path / name, COURSE).files == {STAGE: HONEST}


def test_hostile_members_do_not_cost_the_honest_one_beside_them(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(
        zipped((f"../{STAGE}", b"evil"), (STAGE, HONEST), (f"a\n/{STAGE}", b"evil"))
    )

    work = submission.load(tmp_path / "a.zip", COURSE)

    assert work.files == {STAGE: HONEST}
    assert len(work.info.notes) == 2


LINKS: dict[str, Callable[[Path, Path], None]] = {
    "symbolic link": lambda path, secret: path.symlink_to(secret),
    "hard link": lambda path, secret: path.hardlink_to(secret),
    "pipe": lambda path, secret: os.mkfifo(path),
    "folder": lambda path, secret: path.mkdir(),
    "dangling link": lambda path, secret: path.symlink_to("/nonexistent"),
}


@pytest.mark.parametrize("kind", LINKS)
def test_what_is_no_plain_file_of_its_own_is_not_taken(kind: str, tmp_path: Path, secret: Path) -> None:
    folder = tmp_path / "handed in"
    folder.mkdir()
    LINKS[kind](folder / STAGE, secret)

    with pytest.raises(SubmissionError, match="is a link or not a plain file"):
        submission.load(folder, COURSE)


@pytest.mark.parametrize("name", [STAGE, "a.zip", "a.tar.gz"])
@pytest.mark.parametrize("kind", ["symbolic link", "pipe"])
def test_a_link_or_pipe_handed_in_as_a_file_is_refused_at_once(
    kind: str, name: str, tmp_path: Path, secret: Path
) -> None:
    LINKS[kind](tmp_path / name, secret)

    with pytest.raises(SubmissionError, match=r"can't be read|not a plain file"):
        submission.load(tmp_path / name, COURSE)


def test_a_link_to_a_folder_is_not_followed_into_it(tmp_path: Path, secret: Path) -> None:
    folder = tmp_path / "handed in"
    folder.mkdir()
    (folder / "work").symlink_to(secret.parent)

    with pytest.raises(SubmissionError, match="no stage file"):
        submission.load(folder, COURSE)


def test_nobodys_name_for_a_file_reaches_the_message_raw(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped((f"\x1b[2J\u202e\n/{STAGE}", HONEST)))

    with pytest.raises(SubmissionError) as caught:
        submission.load(tmp_path / "a.zip", COURSE)

    assert str(caught.value).isprintable()


def test_members_are_read_lazily_and_in_bounds() -> None:
    """Twenty thousand stage files in folders of their own would be twenty gigabytes."""
    packed = zipped(*((f"{n}/{STAGE}", bytes(1 << 20)) for n in range(100)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    members = archive.members(packed)

    assert len(members) == 100
    assert len(members[7].read(1000)) == 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < peak + (50 << 10)


def handed_in(tmp_path: Path, kind: str, names: dict[str, bytes]) -> Path:
    """The files as a folder, or packed."""
    if kind == "folder":
        (tmp_path / "ada").mkdir()
        for name, content in names.items():
            (tmp_path / "ada" / name).write_bytes(content)
        return tmp_path / "ada"
    (tmp_path / "ada.zip").write_bytes(zipped(*names.items()))
    return tmp_path / "ada.zip"


COPY, LATER = (STAGE.replace(".py", f"{mark}.py") for mark in (" (1)", "-2"))


@pytest.mark.parametrize("kind", ["folder", "zip"])
@pytest.mark.parametrize(
    ("names", "taken", "noted"),
    [
        ((COPY,), COPY, f"`{COPY}` is taken for `{STAGE}`"),
        ((COPY, LATER), LATER, f"`{COPY}` is not taken: `{LATER}` is"),
        ((STAGE, COPY, LATER), STAGE, f"`{COPY}` is not taken: `{STAGE}` is"),
    ],
    ids=["one copy", "two copies", "its own name"],
)
def test_a_file_that_a_browser_renamed_is_taken_where_none_has_its_own_name(
    kind: str, names: tuple[str, ...], taken: str, noted: str, tmp_path: Path
) -> None:
    work = submission.load(handed_in(tmp_path, kind, {name: name.encode() for name in names}), COURSE)
    assert work.files == {STAGE: taken.encode()}
    assert noted in work.info.notes


def test_a_renamed_file_alone_is_that_stages(tmp_path: Path) -> None:
    (tmp_path / COPY).write_bytes(HONEST)
    assert submission.load(tmp_path / COPY, COURSE).files == {STAGE: HONEST}


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_a_file_that_is_too_large_costs_its_own_stage_alone(kind: str, tmp_path: Path) -> None:
    large, other = STAGE, COURSE.stages[1].file
    names = {large: b"#" * (submission.MAX_FILE_BYTES + 1), other: HONEST}
    work = submission.load(handed_in(tmp_path, kind, names), COURSE)

    assert work.files == {other: HONEST}
    (note,) = work.info.notes
    assert note.startswith(f"`{large}` is more than 1048576 bytes")


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_a_file_that_is_too_large_alone_is_said(kind: str, tmp_path: Path) -> None:
    path = handed_in(tmp_path, kind, {STAGE: b"#" * (submission.MAX_FILE_BYTES + 1)})
    with pytest.raises(SubmissionError, match=r"holds no stage file.* is more than 1048576 bytes"):
        submission.load(path, COURSE)
