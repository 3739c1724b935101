from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F


class ContextFull(ValueError):
    """More positions than the model has embeddings for."""


@dataclass(frozen=True)
class Span:
    """The new positions `start … stop - 1` of a call."""

    start: int
    stop: int
    _: KW_ONLY
    device: torch.device | None = None

    def check(self, block_size: int) -> Span:
        if self.stop > block_size:
            raise ContextFull(f"position {self.stop - 1} of {block_size}")
        return self

    @property
    def positions(self) -> torch.Tensor:
        return torch.arange(self.start, self.stop, device=self.device)

    @property
    def hidden(self) -> torch.Tensor:
        """(T, S), true where a query must not look."""
        return torch.arange(self.stop, device=self.device)[None] > self.positions[:, None]


@dataclass
class Presents:
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def keep(self, x: torch.Tensor, pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        self.pairs.append(pair)
        return x


class Attention(nn.Module):
    def __init__(self, cfg) -> None:
        super().__init__()
        self.n_head = cfg.n_head
        self.c_attn = nn.Linear(in_features=cfg.n_embd, out_features=3 * cfg.n_embd)
        self.c_proj = nn.Linear(in_features=cfg.n_embd, out_features=cfg.n_embd)

    def forward(self, x: torch.Tensor, past: Sequence[torch.Tensor] | None = None):
        B, T, C = x.shape
        new = self.c_attn(x).view(B, T, 3, self.n_head, C // self.n_head).transpose(1, 3)  # (B, H, 3, T, D)
        q, k, v = new.unbind(dim=2)
        if past is not None:
            k, v = (torch.cat(tensors=[old, added], dim=2) for old, added in zip(past, (k, v), strict=True))
        span = Span(k.shape[2] - T, k.shape[2], device=x.device)
        y = F.scaled_dot_product_attention(query=q, key=k, value=v, attn_mask=~span.hidden)
        return self.c_proj(input=y.transpose(1, 2).reshape(B, T, C)), (k, v)


class MLP(nn.Module):
    def __init__(self, cfg) -> None:
        super().__init__()
        self.c_fc = nn.Linear(cfg.n_embd, 4 * cfg.n_embd)
        self.c_proj = nn.Linear(4 * cfg.n_embd, cfg.n_embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, cfg) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(cfg.n_embd)
        self.attn = Attention(cfg)
        self.ln_2 = nn.LayerNorm(cfg.n_embd)
        self.mlp = MLP(cfg)

    def forward(self, x: torch.Tensor, past: Sequence[torch.Tensor] | None = None):
        y, pair = self.attn(x=self.ln_1(x), past=past)
        x = x + y
        return x + self.mlp(x=self.ln_2(x)), pair


class GPT(nn.Module):
    def __init__(self, cfg) -> None:
        super().__init__()
        self.cfg = cfg
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.h = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layer))
        self.ln_f = nn.LayerNorm(cfg.n_embd)
        self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx: torch.Tensor, past=None):
        P = 0 if past is None else past[0][0].shape[2]
        span = Span(P, P + idx.shape[1], device=idx.device).check(self.cfg.block_size)
        x = self.wte(idx) + self.wpe(span.positions)
        presents = Presents()
        for i, block in enumerate(self.h):
            x = presents.keep(*block(x=x, past=None if past is None else past[i]))
        return self.lm_head(self.ln_f(x)), presents.pairs
