"""What weights and a cache hold in memory: arithmetic on a model's shape, before any model is built.

A token costs 2 (a key and a value) × layers × key/value heads × head size × bytes a number (Pope et al. 2022,
arXiv 2211.05102, section 3.3). Grouped queries share keys and values (Ainslie et al. 2023, arXiv
2305.13245), one key and value serve all heads in multi-query attention (Shazeer 2019, arXiv 1911.02150), a
window keeps the last positions only (Jiang et al. 2023, arXiv 2310.06825), latent attention keeps one
compressed vector (DeepSeek-V2, arXiv 2405.04434). Bytes are exact; k is 1,024 tokens.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgspec

from grader.errors import CourseError

MODELS = Path(__file__).with_name("models.toml")
BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "int8": 1}
SHORT = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
MISTRALS_WINDOW = 4096
QUERIES_A_GROUP = 4  # of the grouped-query row of a model that groups none: Llama 3 8B's
TOKENS = re.compile(r"([0-9]{1,9})([km]?)", re.IGNORECASE)
TIMES = {"": 1, "k": 1024, "m": 1024**2}


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model's sizes, and where they are from.

    `windowed_layers` of its layers keep the last `window` positions; with `latent` attention a layer keeps so
    many numbers a position in place of keys and values.
    """

    name: str
    title: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    mlp_width: int
    gated: bool
    vocab: int
    tied: bool
    parameters: int
    context: int
    source: str
    window: int = 0
    windowed_layers: int = 0
    latent: int = 0


class _Models(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: so many users, each with a text of `context` tokens; None means as the model has it."""

    shape: Shape
    context: int
    users: int = 1
    dtype: str = "bfloat16"
    kv_heads: int | None = None
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """What the layers of a model keep: `numbers` a layer and position, of which `windowed_layers` forget."""

    title: str
    layers: int
    numbers: int
    bytes_per_number: int
    window: int = 0
    windowed_layers: int = 0

    @property
    def token_bytes(self) -> int:
        """The bytes of one more token, as long as no window is full."""
        return self.layers * self.numbers * self.bytes_per_number

    def bytes_of(self, positions: int) -> int:
        """The bytes of a text of so many positions."""
        kept = min(positions, self.window) if self.window else positions
        whole = self.layers - self.windowed_layers
        return self.numbers * self.bytes_per_number * (whole * positions + self.windowed_layers * kept)


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes of one layout: of a token, of one user's text, of all users'; `own` for the one asked about."""

    title: str
    token_bytes: int
    user_bytes: int
    total_bytes: int
    own: bool = False


@dataclass(frozen=True, slots=True)
class Footprint:
    """The answer: bytes of the weights, of the cache asked about, and of other ways to keep one."""

    model: str
    context: int
    users: int
    dtype: str
    weight_bytes: int
    cache: Cost
    others: tuple[Cost, ...]


@cache
def shapes() -> Mapping[str, Shape]:
    """The models that ship with the grader, by name.

    Raises CourseError where their file is wrong.
    """
    return parse(MODELS.read_text(encoding="utf-8"))


def parse(text: str) -> Mapping[str, Shape]:
    """Check a list of models: each with a source, sizes that fit each other, a name of its own.

    Raises CourseError with the model and what is wrong with it.
    """
    try:
        models = msgspec.convert(tomllib.loads(text), _Models).model
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise CourseError(f"`{MODELS.name}`: {error}") from error
    for shape in models:
        for wrong in _faults(shape):
            raise CourseError(f"`{MODELS.name}`, model `{shape.name}`: {wrong}")
    by_name = {shape.name: shape for shape in models}
    if len(by_name) != len(models):
        raise CourseError(f"`{MODELS.name}`: two models have the same name")
    return by_name


def find(name: str) -> Shape:
    """The model of this name.

    Raises ValueError with the names that are nearest.
    """
    known = shapes()
    if name.lower() in known:
        return known[name.lower()]
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.4)
    guess = f"did you mean {' or '.join(f'`{n}`' for n in near)}? " if near else ""
    raise ValueError(f"no model `{name}`: {guess}`grade memory --model list` names all")


def known(measured: str) -> Shape | None:
    """The shape of a model that was measured, if it is known; random weights change no shape."""
    return shapes().get(measured.removesuffix("-random"))


def tokens(text: str) -> int:
    """`8192`, `8k` and `1m` as tokens.

    Raises ValueError for anything else, and for none.
    """
    match = TOKENS.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError(f"`{text}` is no number of tokens: write it as 8192, 8k or 1m (k is 1,024)")
    return int(match[1]) * TIMES[match[2].lower()]


def footprint(question: Question) -> Footprint:
    """Work out weights and cache.

    Raises ValueError for key/value heads that can't share out the query heads.
    """
    shape, size = question.shape, BYTES[question.dtype]
    if question.kv_heads is not None and (question.kv_heads < 1 or shape.heads % question.kv_heads):
        raise ValueError(
            f"{question.kv_heads} key/value heads can't serve {shape.heads} query heads: take a divisor"
        )
    own = own_layout(question)
    others = tuple(_cost(layout, question) for layout in _others(question, own))
    return Footprint(
        shape.name,
        question.context,
        question.users,
        question.dtype,
        shape.parameters * size,
        _cost(own, question, own=True),
        others,
    )


def keys_and_values(shape: Shape, kv_heads: int, size: int) -> Layout:
    """So many key/value heads in every layer, each position kept."""
    kind = {shape.heads: "MHA", 1: "MQA"}.get(kv_heads, "GQA")
    heads = "1 head" if kv_heads == 1 else f"{kv_heads} heads"
    return Layout(f"{kind}, {heads}", shape.layers, 2 * kv_heads * shape.head_dim, size)


def own_layout(question: Question) -> Layout:
    """The layout asked about: the model's, but for what the question changes."""
    shape, size = question.shape, BYTES[question.dtype]
    if shape.latent and question.kv_heads is None:
        layout = Layout(f"MLA, {shape.latent} numbers", shape.layers, shape.latent, size)
    else:
        layout = keys_and_values(shape, question.kv_heads or shape.kv_heads, size)
    window = shape.window if question.window is None else question.window
    return _windowed(layout, window, shape.windowed_layers or shape.layers) if window else layout


def _others(question: Question, own: Layout) -> list[Layout]:
    """Other ways to keep the same text, from the dearest on; the one asked about is left out."""
    shape, size = question.shape, BYTES[question.dtype]
    grouped = shape.kv_heads if shape.kv_heads < shape.heads else _grouped(shape.heads)
    layouts = [keys_and_values(shape, heads, size) for heads in (shape.heads, grouped, 1)]
    if shape.latent and not own.title.startswith("MLA"):
        layouts.append(Layout(f"MLA, {shape.latent} numbers", shape.layers, shape.latent, size))
    if not own.window and question.context > 1:
        layouts.append(_windowed(own, _window_worth_it(question.context), shape.layers))
    if size > BYTES["int8"]:
        layouts.append(replace(own, title=f"{own.title}, int8", bytes_per_number=BYTES["int8"]))
    return [layout for layout in dict.fromkeys(layouts) if layout != own]


def _windowed(layout: Layout, window: int, layers: int) -> Layout:
    part = "" if layers == layout.layers else f" in {layers} layers"
    title = f"{layout.title}, window {window:,}{part}"
    return replace(layout, title=title, window=window, windowed_layers=layers)


def _window_worth_it(context: int) -> int:
    """Mistral 7B's window, or for a short text the largest power of two up to half of it."""
    return int(min(MISTRALS_WINDOW, 2 ** ((context // 2).bit_length() - 1)))


def _grouped(heads: int) -> int:
    """How many key/value heads a model would have if about four query heads shared one."""
    return next(n for n in range(max(heads // QUERIES_A_GROUP, 1), 0, -1) if heads % n == 0)


def _cost(layout: Layout, question: Question, *, own: bool = False) -> Cost:
    user = layout.bytes_of(question.context)
    return Cost(layout.title, layout.token_bytes, user, question.users * user, own)


def _faults(shape: Shape) -> list[str]:
    """Say what a well-typed shape still has wrong."""
    faults = [] if shape.source.strip() else ["it has no source"]
    sizes = (
        "layers",
        "heads",
        "kv_heads",
        "head_dim",
        "width",
        "mlp_width",
        "vocab",
        "parameters",
        "context",
    )
    faults += [f"{size} is `{getattr(shape, size)}`" for size in sizes if getattr(shape, size) < 1]
    if not faults and shape.heads % shape.kv_heads:
        faults.append(f"{shape.kv_heads} key/value heads can't serve {shape.heads} query heads")
    if bool(shape.window) != bool(shape.windowed_layers) or not 0 <= shape.windowed_layers <= shape.layers:
        faults.append("window and windowed_layers go together, and no more layers than there are")
    return faults
