"""A hostile archive, read in memory: bounded in bytes, members and time, never unpacked to disk; and our own.

The standard library's `tarfile` reads a header's announced size into memory, recurses from one long name
into the next, and takes hours over some headers (CVE-2024-6232); `zipfile` unpacks bzip2 and LZMA without
bound, and makes an object of each of a million members. So a tar file is read here, which takes little for
plain files with short names; and a zip file is vetted before.
"""

from __future__ import annotations

import gzip
import io
import stat
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from grader.errors import SubmissionError

MAX_UNPACKED_BYTES = 64 << 20
MAX_MEMBERS = 20_000
PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ZIP_ENTRY = b"PK\x01\x02"  # begins each member's entry in a zip's table
ENCRYPTED = 0x1  # of a member's flags
GZIP = b"\x1f\x8b"
BLOCK = 512
EPOCH = (1980, 1, 1, 0, 0, 0)  # of what is packed here: a zip can tell no earlier time
TAR_FILE = (b"0", b"\0")


@dataclass(frozen=True, slots=True)
class Member:
    """A plain file in an archive: its name as it stands there, and how to read its first so many bytes."""

    name: str
    read: Callable[[int], bytes]


def members(data: bytes) -> list[Member]:
    """The plain files of a zip or tar archive, gzipped or not.

    Raises SubmissionError for a bomb; whatever else it raises means that this is no archive.
    """
    if data.startswith(b"PK"):
        _vet_count(data.count(ZIP_ENTRY))
        return _zip_members(zipfile.ZipFile(io.BytesIO(data)))
    if data.startswith(GZIP):
        with gzip.open(io.BytesIO(data)) as file:
            data = file.read(MAX_UNPACKED_BYTES + 1)
    if len(data) > MAX_UNPACKED_BYTES:
        raise SubmissionError(f"more than {MAX_UNPACKED_BYTES} bytes unpacked")
    try:
        return list(_tar_members(data))
    except (ValueError, EOFError) as error:
        raise SubmissionError(f"it is not a readable archive, zip or tar: {error}") from error


def packed(files: Mapping[str, bytes], executable: Collection[str] = ()) -> bytes:
    """Make a zip of files by name; the same ones in the same order give the same bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, EPOCH)
            info.external_attr = (stat.S_IFREG | (0o755 if name in executable else 0o644)) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return made.getvalue()


def _zip_members(archive: zipfile.ZipFile) -> list[Member]:
    files = [info for info in archive.infolist() if not info.is_dir()]
    kinds = (0, stat.S_IFREG)  # 0 where it was packed on Windows
    plain = [info for info in files if stat.S_IFMT(info.external_attr >> 16) in kinds]
    return [Member(info.filename, partial(_unzipped, archive, info)) for info in plain]


def _unzipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes:
    if info.flag_bits & ENCRYPTED:
        raise SubmissionError("it is locked with a password; pack it without one")
    if info.compress_type not in PLAIN:
        raise SubmissionError("it is packed in an unusual way; pack it with deflate, as everybody does")
    with archive.open(info) as file:
        return file.read(limit)


def _tar_members(data: bytes) -> Iterator[Member]:
    at = count = 0
    while any(header := data[at : at + BLOCK]):
        _vet_count(count := count + 1)
        if _octal(header[148:156]) != sum(header[:148]) + sum(b" " * 8) + sum(header[156:]):
            raise ValueError("a header with a wrong checksum")
        begin, size = at + BLOCK, _octal(header[124:136])
        if begin + size > len(data):
            raise EOFError("it is cut off")
        if header[156:157] in TAR_FILE:
            folder, name = (_text(field) for field in (header[345:500], header[:100]))
            full = f"{folder}/{name}" if folder and header[257:262] == b"ustar" else name
            yield Member(full, partial(_cut, memoryview(data)[begin : begin + size]))
        at = begin + -(-size // BLOCK) * BLOCK
    if not at:
        raise ValueError("nothing in it")


def _cut(content: memoryview, limit: int) -> bytes:
    return bytes(content[:limit])


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def _octal(field: bytes) -> int:
    return int(field.strip(b" \0") or b"0", 8)


def _vet_count(count: int) -> None:
    if count > MAX_MEMBERS:
        raise SubmissionError(f"an archive of more than {MAX_MEMBERS} members")
