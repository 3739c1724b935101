"""`grade measure hf`: the same with `transformers`, whose `use_cache` is turned on and off."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from grader import measure
from grader.bench import Bench
from grader.course import Course
from grader.faults import Mistake
from grader.measure import Wanted
from grader.subject import Shape

KEYS_AND_VALUES = 2
WHY_LONGEST = 160  # characters of a reason that is not ours


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A causal language model of `transformers`; `argument` is how its forward is handed a cache."""

    device: torch.device
    dtype: torch.dtype
    shape: Shape
    model: Any
    argument: str

    def uncached(self, idx: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(idx, use_cache=False).logits
        return logits

    def cached(self, idx: torch.Tensor, past: Any) -> tuple[torch.Tensor, Any]:
        out = self.model(idx, use_cache=True, **{self.argument: past})
        return out.logits, cache_of(out)

    def write(self, idx: torch.Tensor, n_new: int, *, cached: bool) -> tuple[torch.Tensor, Any]:
        out = self.model.generate(
            idx,
            attention_mask=torch.ones_like(idx),
            max_new_tokens=n_new,
            do_sample=False,
            use_cache=cached,
            return_dict_in_generate=True,
        )
        return out.sequences, cache_of(out) if cached else None

    def cache_bytes(self, past: Any) -> int:
        return sum(t.nbytes for pair in pairs(past) for t in pair)

    def bytes_per_position(self) -> int:
        s = self.shape
        return KEYS_AND_VALUES * s.n_layer * s.n_kv_head * s.head_dim * self.dtype.itemsize

    def positions(self, past: Any) -> int:
        return max(int(keys.shape[-2]) for keys, _ in pairs(past))

    def first_mismatch(self, a: torch.Tensor, b: torch.Tensor) -> int | None:
        differs = (a != b).any(dim=0).nonzero()
        return int(differs[0]) if len(differs) else None


def run(course: Course, wanted: Wanted) -> None:
    """Measure a Hugging Face model, write the tables and show them.

    Raises Mistake for a model that is not there.
    """
    device, dtype = measure.device_of(wanted.device), measure.dtype_of(wanted.dtype, wanted.device)
    where = str(course.exercises / "small") if wanted.model == "small" else wanted.model
    model = load(where, device, dtype)
    code = f"transformers {metadata.version('transformers')}"
    settings = measure.settings_of(wanted, code, code, model.shape.context)
    table = Bench(model, settings, measure.effort(wanted), measure.text_for(model, settings))
    wanted = replace(wanted, out=wanted.out or course.root / "results" / "hf")
    notes = measure.remarks(wanted, settings, model.shape.context)
    measure.carry_out(course, table.tasks(), wanted, settings, (code, *notes))


def load(where: str, device: torch.device, dtype: torch.dtype) -> Pretrained:
    """Load a model from a folder or by its name on the hub.

    Raises Mistake where there is none, or where it is none that continues text.
    """
    try:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging
    except ImportError as error:
        raise Mistake("this needs transformers: `pip install -e '.[hf]'`") from error
    try:
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        model: Any = AutoModelForCausalLM.from_pretrained(where)
    except Exception as error:  # transformers and the hub's client raise whatever they like
        reason = str(error).partition("\n")[0][:WHY_LONGEST]
        advice = "name a folder that save_pretrained wrote, or go online once"
        raise Mistake(f"`{Path(where).name}` is no model that can be loaded ({reason}): {advice}") from error
    model = model.to(device=device, dtype=dtype).eval().requires_grad_(False)
    model.generation_config.eos_token_id = None  # so many tokens as are asked for, and no fewer
    model.generation_config.pad_token_id = 0
    return Pretrained(device, dtype, shape_of(model.config), model, argument_of(model))


def shape_of(config: Any) -> Shape:
    """The sizes that a config gives, under the names of its family."""
    config = config.get_text_config()
    heads = int(config.num_attention_heads)
    return Shape(
        n_layer=int(config.num_hidden_layers),
        n_kv_head=int(getattr(config, "num_key_value_heads", None) or heads),
        head_dim=int(getattr(config, "head_dim", None) or config.hidden_size // heads),
        context=int(config.max_position_embeddings),
        vocab_size=int(config.vocab_size),
    )


def argument_of(model: Any) -> str:
    """`cache` since transformers 5.24, `past_key_values` before."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def cache_of(out: Any) -> Any:
    """The cache in an output; an empty one is false, so what is asked is whether it is there."""
    cache = getattr(out, "cache", None)
    return out.past_key_values if cache is None else cache


def pairs(cache: Any) -> Sequence[tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values, layer by layer, of a Cache of transformers 5.x, of 4.x, or a tuple of pairs."""
    if hasattr(cache, "layers"):
        return [(layer.keys, layer.values) for layer in cache.layers]
    if hasattr(cache, "key_cache"):
        return list(zip(cache.key_cache, cache.value_cache, strict=True))
    layers: Iterable[Any] = cache
    return [(layer[0], layer[1]) for layer in layers]
