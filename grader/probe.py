"""What a check hands to a student: weights that show every bug, and a model that sees how it is called.

The expected values all come from the given, uncached `gpt2.py`; no cached implementation is in reach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import torch
from torch import Generator, Tensor, nn

from grader.machine import Machine as Machine

# The std of every parameter; at GPT-2's own 0.02 greedy text is one token over and over (FIELD_NOTES 0.1).
HOT = 0.2
# The least top-2 gap along a greedy text, as a share of the largest |logit|: 1000 times float32's noise.
MARGIN = 0.003
CANDIDATES, DRAWS = 8, 50  # prompts drawn at a time, and from how many models, before giving up
# The probe's keys and values are numbers up to ± CODE in steps of 1 / FINE: a sum of two is exact, and none
# survives a narrower dtype.
CODE = 512
FINE = {torch.float64: 2**40, torch.float32: 2**12}

MOST_COMPLAINTS = 10

M = TypeVar("M", bound=nn.Module)


def hot(module: M, rng: Generator, dtype: torch.dtype = torch.float64) -> M:
    """Draw every parameter from N(0, 0.2²), layer norms' gains around 1; return the module in eval mode."""
    module.to(dtype)
    gains = {id(m.weight) for m in module.modules() if isinstance(m, nn.LayerNorm)}
    for p in module.parameters():
        with torch.no_grad():
            p.copy_(torch.randn(p.shape, generator=rng, dtype=torch.float64) * HOT + (id(p) in gains))
    return module.eval().requires_grad_(False)


def ids(rng: Generator, cfg: Any, B: int, T: int) -> Tensor:
    """Draw token ids (B, T)."""
    return torch.randint(cfg.vocab_size, (B, T), generator=rng)


def number(rng: Generator, low: int, high: int) -> int:
    """Draw an int from low to high, both included."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


def durations(rng: Generator, n: int) -> list[float]:
    """Draw how many seconds each of n steps works: 5 to 50 ms, neighbours clearly apart."""
    slow = [number(rng, 30, 50) / 1000 for _ in range(n)]
    return [s / 3 if i % 2 else s for i, s in enumerate(slow)]


def inputs(rng: Generator, cfg: Any, B: int, T: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw what attention or a block reads, (B, T, C)."""
    return torch.randn(B, T, cfg.n_embd, generator=rng, dtype=dtype)


def attended(attention: nn.Module, x: Tensor, cfg: Any) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return the oracle attention's y (B, T, C), and the keys and values (B, H, T, D) that it used."""
    taken: list[Tensor] = []
    hook = attention.get_submodule("c_attn").register_forward_hook(lambda _m, _x, out: taken.append(out))
    try:
        y = attention(x)
    finally:
        hook.remove()
    return y, _heads(taken[0], cfg)


def remembered(model: nn.Module, idx: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Return the oracle's logits (B, T, V), and the keys and values (B, H, T, D) that each layer used."""
    taken: list[Tensor] = []
    projections = [m for name, m in model.named_modules() if name.endswith("c_attn")]
    hooks = [m.register_forward_hook(lambda _m, _x, out: taken.append(out)) for m in projections]
    try:
        logits = model(idx)
    finally:
        for hook in hooks:
            hook.remove()
    return logits, [_heads(out, model.cfg) for out in taken]


def _heads(qkv: Tensor, cfg: Any) -> tuple[Tensor, Tensor]:
    """Cut keys and values (B, H, T, D) out of a projection's output (B, T, 3C)."""
    shape = (*qkv.shape[:2], cfg.n_head, cfg.head_dim)
    _, k, v = (part.reshape(shape).transpose(1, 2).contiguous() for part in qkv.chunk(3, dim=-1))
    return k, v


@torch.no_grad()
def greedy(brain: Callable[[Tensor], Tensor], idx: Tensor, n_new: int) -> tuple[Tensor, Tensor]:
    """Continue (B, P) without a cache; return the tokens (B, P + n_new) and each row's least top-2 gap (B,).

    The gap is a share of the largest |logit|. Ties go to the lowest id.
    """
    least = torch.full((idx.shape[0],), float("inf"), dtype=torch.float64)
    for _ in range(n_new):
        last = brain(idx)[:, -1].double()
        top = last.topk(2).values
        least = torch.minimum(least, (top[:, 0] - top[:, 1]) / last.abs().amax(dim=-1))
        idx = torch.cat([idx, last.argmax(dim=-1, keepdim=True)], dim=1)
    return idx, least


def tied(rng: Generator, vocab_size: int) -> Callable[[Tensor], Tensor]:
    """Draw a model (B, S) -> (B, S, V) that looks at the last token only and has several best ones."""
    table = torch.randint(-40, 40, (vocab_size, vocab_size), generator=rng).float() / 8
    for row in table:
        best = torch.randperm(vocab_size, generator=rng)[: int(torch.randint(2, 6, (1,), generator=rng))]
        row[best] = row.max() + 1
    return lambda idx: table[idx]


def greedy_lowest(brain: Callable[[Tensor], Tensor], idx: Tensor, n_new: int) -> Tensor:
    """Continue (B, P) without a cache, an exact tie going to the lowest id by comparing, not by `argmax`."""
    for _ in range(n_new):
        last = brain(idx)[:, -1]
        every = torch.arange(last.shape[-1]).expand_as(last)
        best = torch.where(last == last.amax(dim=-1, keepdim=True), every, last.shape[-1]).amin(dim=-1)
        idx = torch.cat([idx, best[:, None]], dim=1)
    return idx


def _well_told(tokens: Tensor, gap: Tensor, P: int, B: int) -> Tensor:
    """Choose up to B rows with wide gaps that begin with different new tokens and don't repeat one."""
    rows: dict[int, Tensor] = {}
    for row in tokens[gap > MARGIN]:
        new = row[P:].tolist()
        if new and len(set(new)) >= min(3, len(new)):
            rows.setdefault(new[0], row)
    return torch.stack(list(rows.values())[:B]) if rows else tokens[:0]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a probe: the ids it was fed (B, T), the ids it found in the past (B, P)."""

    fed: Tensor
    past: Tensor
    past_requires_grad: bool


class Probe(nn.Module):
    """A model `model(idx, past=None) -> (logits, presents)` without a cache, which records every call.

    Its keys and values are code numbers for the ids, different for every layer and position, so that it reads
    the text back out of whatever past it is handed. `brain` maps ids (B, S) to logits (B, S, V), in float32
    or float64; V is at most 1024.
    """

    def __init__(
        self,
        brain: Callable[[Tensor], Tensor],
        cfg: Any,
        rng: Generator,
        containers: tuple[Any, Any] = (list, tuple),
    ) -> None:
        super().__init__()
        self.brain = brain
        self.cfg = cfg
        if not isinstance(brain, nn.Module):
            self.scale = nn.Parameter(torch.ones(1))
        self.outer, self.inner = containers
        self.calls: list[Call] = []
        self.complaints: list[str] = []
        self.grad_enabled: bool | None = None  # set before each call by who calls for another process
        layers, size, fine = cfg.n_layer, (cfg.n_head, cfg.head_dim), FINE[self.dtype]
        self.token_code, self.place_code = (
            torch.randint(-CODE * fine, CODE * fine, (layers, 2, n, *size), generator=rng).to(self.dtype)
            / fine
            for n in (cfg.vocab_size, cfg.block_size)
        )
        # one element of a key alone names the id
        names = torch.randperm(2 * CODE, generator=rng)[: cfg.vocab_size] - CODE
        self.token_code[..., 0, 0] = names.to(self.dtype)
        self.token_named = torch.zeros(2 * CODE, dtype=torch.int64)
        self.token_named[names + CODE] = torch.arange(cfg.vocab_size)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def seen(self) -> int:
        """How many positions the model knew of after its last call."""
        return int(self.calls[-1].past.shape[1] + self.calls[-1].fed.shape[1]) if self.calls else 0

    @property
    def fed(self) -> list[int]:
        """How many positions each call was fed."""
        return [int(call.fed.shape[1]) for call in self.calls]

    def forward(self, idx: Tensor, past: Any = None) -> tuple[Tensor, Any]:
        """Answer as a cached model would, from the text that `past` holds."""
        enabled = torch.is_grad_enabled() if self.grad_enabled is None else self.grad_enabled
        with torch.no_grad():
            fed = self._fed(idx)
            before = self._read(past, fed.shape[0], fed.shape[1])
            whole = torch.cat([before, fed], dim=1)
            self.calls.append(Call(fed, before, requires_grad(past)))
            logits = self.brain(whole)[:, before.shape[1] :].clone()
            presents = [self._written(layer, whole) for layer in range(self.cfg.n_layer)]
        if enabled:
            logits = _on_a_graph(logits)
            presents = [(_on_a_graph(k), _on_a_graph(v)) for k, v in presents]
        return logits, self.outer(self.inner(pair) for pair in presents)

    def text_in(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, str]:
        """Read the ids (B, S) out of checked pairs; and say where a layer holds something else."""
        found, fault = None, ""
        for layer, pair in enumerate(pairs):
            for which, t in enumerate(pair):
                text, coded = self._decoded(layer, which, t.detach())
                found = text if found is None else found
                wrong = ~coded | (text != found)
                if not fault and bool(wrong.any()):
                    row, position = (int(i) for i in wrong.nonzero()[0])
                    name = ("keys", "values")[which]
                    fault = f"layer {layer}'s {name}, batch row {row}, position {position}"
        assert found is not None
        return found, fault

    def _refuse(self, message: str) -> NoReturn:
        self._complain(message)
        raise ValueError(message)

    def _complain(self, message: str) -> None:
        if len(self.complaints) < MOST_COMPLAINTS:
            self.complaints.append(message)

    def _fed(self, idx: object) -> Tensor:
        """Check the ids as an embedding would."""
        if not isinstance(idx, Tensor) or idx.dim() != 2 or idx.dtype not in (torch.int64, torch.int32):
            found = f"{tuple(idx.shape)} {idx.dtype}" if isinstance(idx, Tensor) else type(idx).__name__
            self._refuse(f"the model takes token ids (B, T) int64, it was called with `{found}`")
        if idx.numel() and not 0 <= int(idx.min()) <= int(idx.max()) < self.cfg.vocab_size:
            self._refuse(f"the model was fed a token id outside 0 … {self.cfg.vocab_size - 1}")
        return idx.detach().to(torch.int64).clone()

    def _read(self, past: object, B: int, T: int) -> Tensor:
        """Return the ids (B, P) that a past holds; after tampering, complain and take layer 0's word."""
        pairs: list[tuple[Tensor, Tensor]] = []
        if past is not None:
            if not isinstance(past, list | tuple) or len(past) != self.cfg.n_layer:
                self._refuse(f"the model's past must be its {self.cfg.n_layer} pairs (k, v), or None")
            for pair in past:
                if not isinstance(pair, list | tuple) or len(pair) != 2:
                    self._refuse("each layer of the model's past must be a pair (k, v)")
                pairs.append((pair[0], pair[1]))
        P = (
            pairs[0][0].shape[2]
            if pairs and isinstance(pairs[0][0], Tensor) and pairs[0][0].dim() == 4
            else 0
        )
        shape = (B, self.cfg.n_head, P, self.cfg.head_dim)
        for t in (t for pair in pairs for t in pair):
            if not isinstance(t, Tensor) or tuple(t.shape) != shape or t.dtype != self.dtype:
                found = f"{tuple(t.shape)} {t.dtype}" if isinstance(t, Tensor) else type(t).__name__
                self._refuse(
                    f"the model's past must be tensors {shape} {self.dtype} for these ids, not `{found}`"
                )
        if self.cfg.block_size < P + T:
            raise ValueError(f"`{P + T}` positions are more than block_size `{self.cfg.block_size}`")
        if not pairs:
            return torch.empty(B, 0, dtype=torch.int64)
        text, fault = self.text_in(pairs)
        if fault:
            self._complain(f"the past handed to the model is not what it returned: {fault}")
        return text

    def _decoded(self, layer: int, which: int, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ids (B, P) that one tensor (B, H, P, D) names, and where it is as it was written."""
        code = t.transpose(1, 2) - self.place_code[layer, which, : t.shape[2]]  # (B, P, H, D)
        name = code[..., 0, 0].nan_to_num(0.0, 0.0, 0.0).clamp(-CODE, CODE - 1).round().to(torch.int64)
        text = self.token_named[name + CODE]
        return text, (code == self.token_code[layer, which][text]).flatten(2).all(dim=-1)

    def _written(self, layer: int, text: Tensor) -> tuple[Tensor, Tensor]:
        """Write ids (B, S) as keys and values (B, H, S, D)."""
        place = self.place_code[layer, :, : text.shape[1]]
        k, v = ((self.token_code[layer, i][text] + place[i]).transpose(1, 2).contiguous() for i in (0, 1))
        return k, v


def _on_a_graph(t: Tensor) -> Tensor:
    """Make a tensor the result of an operation that autograd keeps."""
    with torch.enable_grad():
        return t.requires_grad_().clone()


def requires_grad(past: object) -> bool:
    """Say whether any tensor of a past hangs on an autograd graph."""
    if isinstance(past, list | tuple):
        return any(requires_grad(each) for each in past)
    return isinstance(past, Tensor) and past.requires_grad


def story(
    oracle: Any,
    rng: Generator,
    sizes: tuple[int, int, int],
    block_size: int = 64,
    forms: tuple[Any, Any] = (list, tuple),
) -> tuple[Probe, Tensor, Tensor]:
    """Draw a model whose greedy text is worth comparing: B prompts of P tokens, n_new more of each (`sizes`).

    Returns its probe, the prompts (B, P) and the uncached tokens (B, P + n_new). At every step the top-2 gap
    is wide, the rows begin with different new tokens, and none says one thing for ever.

    Raises:
        RuntimeError: no such model was drawn, which no seed has been seen to do.
    """
    B, P, n_new = sizes
    cfg = oracle.Config(n_layer=2, n_head=3, n_embd=24, block_size=block_size, vocab_size=61)
    for _ in range(DRAWS):
        model = hot(oracle.GPT(cfg), rng)
        for p in model.h.parameters():
            p.mul_(1 + (p.dim() == 2))  # layers that speak louder than the embedding of the last token
        tokens = _well_told(*greedy(model, ids(rng, cfg, CANDIDATES, P), n_new), P, B)
        if len(tokens) == B:
            return Probe(model, cfg, rng, forms), tokens[:, :P].clone(), tokens
    raise RuntimeError(f"no {B} prompts of `{P}` tokens with a wide margin over `{n_new}` new ones")
