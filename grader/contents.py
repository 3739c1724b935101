"""Everything that a folder says: its files' text, what is packed or compiled in them, its git history."""

from __future__ import annotations

import html
import importlib.util
import marshal
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from grader import archive
from grader.archive import MAX_UNPACKED_BYTES
from grader.faults import Mistake

PACKED = (b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")
TAR_MAGIC, TAR_MAGIC_AT = b"ustar", 257
COMPILED = (".pyc", ".pyo")
PYC_HEADER_BYTES = 16
DEEPEST = 4  # an archive in an archive in …
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
PRINTABLE = re.compile("[^\0-\x08\x0e-\x1f\x7f\ufffd]{6,}")
UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Piece:
    """A text and where it stands; `doubt` says why there may be more in that place than could be read."""

    place: str
    text: str
    doubt: str = ""


def of_folder(root: Path, is_wanted: Callable[[str], bool] = lambda name: True) -> Iterator[Piece]:
    """Read every wanted file under `root`, by its path there; git's objects are `history`'s."""
    for top, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not _is_passed_over(Path(top) / name)]
        for path in sorted(Path(top) / name for name in files):
            name = path.relative_to(root).as_posix()
            if not is_wanted(name):
                continue
            if path.is_symlink():
                yield Piece(name, f"{name} {os.readlink(path)}")
                continue
            yield Piece(name, name)
            if not (path.suffix in COMPILED and _is_what_its_source_says(path)):
                yield from of_bytes(name, path.read_bytes())


def _is_passed_over(path: Path) -> bool:
    is_environment = (path / "pyvenv.cfg").is_file()
    return is_environment or (path.name == "objects" and path.parent.name == ".git")


def of_bytes(place: str, data: bytes, depth: int = 0) -> Iterator[Piece]:
    """Read one file's content: as text, as an archive, as compiled Python."""
    if place.endswith(COMPILED):
        yield _compiled(place, data)
    elif data.startswith(PACKED) or data[TAR_MAGIC_AT:].startswith(TAR_MAGIC):
        yield from _packed(place, data, depth)
    else:
        text = _decoded(data)
        yield Piece(place, text)
        if "\\" in text:  # JSON, as in notebooks, and text quoted in a program
            yield Piece(place, ESCAPE.sub(_unescaped, text))
        if "&" in text:
            yield Piece(place, html.unescape(text))


def _decoded(data: bytes) -> str:
    """The text; of what is none, such as weights, each run of printable characters."""
    if data.startswith(UTF16):
        return data.decode("utf-16", "replace")
    if b"\0" not in data:
        return data.decode("utf-8", "replace")
    views = (view.decode("utf-8", "replace") for view in (data, data.replace(b"\0", b"")))  # UTF-16 has zeros
    return "\n".join(run for view in views for run in PRINTABLE.findall(view))


def _unescaped(found: re.Match[str]) -> str:
    """What an escape stands for; a space for a line's end, so that lines keep their numbers."""
    code = found[1]
    if code[0] == "u" and len(code) > 1:
        return chr(int(code[1:], 16))
    return " " if code in "nrt" else code


def _packed(place: str, data: bytes, depth: int) -> Iterator[Piece]:
    """Read an archive's members as files; where it is none that can be read, say so."""
    if depth == DEEPEST:
        yield Piece(place, "", "is packed too deep to be looked into: unpack it, or leave it out")
        return
    try:
        inside = [(m.name, m.read(MAX_UNPACKED_BYTES + 1)) for m in archive.members(data)]
    except Exception as error:  # a parser may raise anything
        yield Piece(place, "", f"is packed and can't be looked into ({error}): unpack it, or leave it out")
        return
    for name, content in inside:
        yield Piece(f"{place}!{name}", name)
        yield from of_bytes(f"{place}!{name}", content, depth + 1)


def _is_what_its_source_says(path: Path) -> bool:
    """Whether compiled Python is what the source beside it compiles to, and so holds nothing more."""
    try:
        source = Path(importlib.util.source_from_cache(str(path)))
        code = compile(source.read_bytes(), str(source), "exec", dont_inherit=True)
        return code == _code(path.read_bytes())
    except (ValueError, OSError, SyntaxError):
        return False


def _code(data: bytes) -> CodeType:
    """Raises ValueError where another Python compiled it, or it is nothing compiled at all."""
    if not data.startswith(importlib.util.MAGIC_NUMBER):
        raise ValueError("compiled by another Python")
    try:
        code = marshal.loads(data[PYC_HEADER_BYTES:])
    except (EOFError, TypeError) as error:
        raise ValueError("cut short") from error
    if not isinstance(code, CodeType):
        raise ValueError("no code")
    return code


def _compiled(place: str, data: bytes) -> Piece:
    """Every name and text in compiled Python. Its lines can't be read back, so it is doubtful in any case."""
    doubt = "is compiled, and not from a source beside it: leave it out"
    try:
        return Piece(place, "\n".join(_said_by(_code(data))), doubt)
    except ValueError:
        return Piece(place, data.decode("utf-8", "replace"), doubt)


def _said_by(code: CodeType) -> Iterator[str]:
    yield from (code.co_name, *code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars)
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _said_by(value)
        else:
            yield value if isinstance(value, str) else repr(value)


@dataclass(frozen=True, slots=True)
class Version:
    """Something that git keeps: a file's version with its path, a commit, a tag."""

    name: str
    kind: str
    sha: str
    content: bytes

    @property
    def pieces(self) -> Iterator[Piece]:
        place = f"git {self.kind} {self.sha[:10]}{f', {self.name}' if self.name else ''}"
        yield Piece(place, self.name)
        yield from of_bytes(place, self.content)


def history(root: Path) -> Iterator[Version]:
    """Read all that git keeps for `root`: each version of each file, messages, and what no branch holds.

    Raises Mistake where git can't say.
    """
    names: dict[str, str] = {}
    for line in git(root, "rev-list", "--objects", "--all").decode("utf-8", "replace").splitlines():
        sha, _, name = line.partition(" ")
        names.setdefault(sha, name)
    for sha, kind, content in _objects(git(root, "cat-file", "--batch-all-objects", "--batch")):
        if kind != "tree":
            yield Version(names.get(sha, ""), kind, sha, content)


def _objects(batch: bytes) -> Iterator[tuple[str, str, bytes]]:
    at = 0
    while at < len(batch):
        end = batch.index(b"\n", at)
        sha, kind, size = batch[at:end].decode().split()
        at = end + 1 + int(size)
        yield sha, kind, batch[end + 1 : at]
        at += 1


def git(folder: Path, *arguments: str) -> bytes:
    """What a git command says in a folder, whatever repository the environment may name.

    Raises Mistake where there is no git, or it fails.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(["git", "-C", folder, *arguments], env=environment, capture_output=True)
    except OSError as error:
        raise Mistake(f"`git` can't be run: {error.strerror}; install it") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise Mistake(f"`git {arguments[0]}` in `{folder}`: {said}")
    return done.stdout
