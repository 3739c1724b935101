"""GPT-2, complete and uncached: the oracle that your cached model has to agree with.

You are given this file and don't have to change it. Read it once from top to bottom: the stages ask you to
write parts of it again, so that they remember what they have already computed.

Sizes: B batch, T positions, C = n_embd (the model's width), H = n_head, D = C / H (a head's size), V =
vocab_size. Token ids are int64. Every module works in any floating dtype; `model.double()` is what the
checks use.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

# GPT-2 was published with Conv1D layers, whose matrix is (in, out); nn.Linear's is (out, in).
CONV1D = ("c_attn.weight", "c_fc.weight", "c_proj.weight")


@dataclass(frozen=True, slots=True)
class Config:
    """Hold a model's sizes; the defaults are GPT-2 "small", 124 M parameters."""

    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    block_size: int = 1024
    vocab_size: int = 50257

    def __post_init__(self) -> None:
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd `{self.n_embd}` must be a multiple of n_head `{self.n_head}`")

    @property
    def head_dim(self) -> int:
        """Return D, the size of one head."""
        return self.n_embd // self.n_head


class Attention(nn.Module):
    """Let every position look back: softmax(q kᵀ / √D) v in each head, over itself and all before it."""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.n_head = cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)  # q, k and v, side by side in that order
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map x (B, T, C) to y (B, T, C)."""
        B, T, C = x.shape
        H, D = self.n_head, C // self.n_head

        q, k, v = self.c_attn(x).split(C, dim=2)  # (B, T, C) each
        q = q.view(B, T, H, D).transpose(1, 2)  # (B, H, T, D)
        k = k.view(B, T, H, D).transpose(1, 2)  # (B, H, T, D)
        v = v.view(B, T, H, D).transpose(1, 2)  # (B, H, T, D)

        scores = q @ k.transpose(-2, -1) / math.sqrt(D)  # (B, H, T, T): row = query, column = key
        may_see = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()  # query j sees keys 0 … j
        scores = scores.masked_fill(~may_see, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v  # (B, H, T, D)

        y = y.transpose(1, 2).reshape(B, T, C)  # the heads side by side again
        return self.c_proj(y)


class MLP(nn.Module):
    """Think about each position on its own: widen four times, bend, narrow again."""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.c_fc = nn.Linear(cfg.n_embd, 4 * cfg.n_embd)
        self.c_proj = nn.Linear(4 * cfg.n_embd, cfg.n_embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map x (B, T, C) to (B, T, C)."""
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """Add what attention and then the MLP have to say to the residual stream."""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(cfg.n_embd, eps=1e-5)
        self.attn = Attention(cfg)
        self.ln_2 = nn.LayerNorm(cfg.n_embd, eps=1e-5)
        self.mlp = MLP(cfg)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map x (B, T, C) to (B, T, C)."""
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x


class GPT(nn.Module):
    """Turn token ids into a score for every possible next token, at every position."""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.cfg = cfg
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)  # what the token is
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)  # where it stands
        self.h = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layer))
        self.ln_f = nn.LayerNorm(cfg.n_embd, eps=1e-5)
        self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight  # tied: one matrix reads tokens and writes them
        self._init_weights()

    def _init_weights(self) -> None:
        """Draw GPT-2's initial weights: N(0, 0.02²), less where a layer adds to the residual stream."""
        for name, p in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * self.cfg.n_layer))
            elif p.dim() == 2:
                nn.init.normal_(p, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, idx: torch.Tensor) -> torch.Tensor:
        """Map ids (B, T) to logits (B, T, V); logits[:, t] scores the token at t + 1.

        Raises:
            ValueError: T is more than block_size; there is no position embedding beyond it.
        """
        T = idx.shape[1]
        if self.cfg.block_size < T:
            raise ValueError(f"`{T}` positions are more than block_size `{self.cfg.block_size}`")
        pos = torch.arange(T, device=idx.device)  # 0 … T-1
        x = self.wte(idx) + self.wpe(pos)  # (B, T, C)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))  # (B, T, V)

    @classmethod
    def from_pretrained(cls, name_or_folder: str | Path) -> GPT:
        """Load a Hugging Face GPT-2 from a local folder, or by its name on the hub ("gpt2", "gpt2-large").

        Raises:
            FileNotFoundError: there is no such folder and no such name.
            ValueError: it is there, but it is not a GPT-2 that this file can compute.
        """
        cfg, weights = _read_pretrained(str(name_or_folder))
        found = {key.removeprefix("transformer."): w for key, w in weights.items()}
        model = cls(cfg)
        # Our names decide: the tied head comes once, as wte; `attn.bias`, an old mask, is not a weight.
        for key, p in model.named_parameters():
            if key not in found:
                raise ValueError(f"`{name_or_folder}` is not a whole GPT-2: it has no `{key}`")
            w = found[key].T if key.endswith(CONV1D) else found[key]
            if w.shape != p.shape:
                sizes = f"`{tuple(p.shape)}`, not `{tuple(w.shape)}`"
                raise ValueError(f"`{name_or_folder}` does not fit its config: `{key}` must be {sizes}")
            p.data.copy_(w)
        return model.eval()


@torch.no_grad()
def generate_nocache(model: GPT, idx: torch.Tensor, n_new: int) -> torch.Tensor:
    """Continue ids (B, T) greedily to (B, T + n_new), reading the whole text again for every new token."""
    for _ in range(n_new):
        logits = model(idx)  # (B, T, V): all T positions, though only the last one is news
        best = logits[:, -1].argmax(dim=-1, keepdim=True)  # (B, 1); a tie goes to the lowest id
        idx = torch.cat([idx, best], dim=1)  # a new tensor: the caller's is not changed
    return idx


def _read_pretrained(where: str) -> tuple[Config, dict[str, torch.Tensor]]:
    """Read sizes and weights: one safetensors file by hand, whatever else there is through transformers."""
    folder, cfg = Path(where), None
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ValueError(f"`{where}` is not a GPT-2 folder: it has no config.json")
        cfg = _parse_config(json.loads((folder / "config.json").read_text(encoding="utf-8")), where)
        if (folder / "model.safetensors").is_file():
            from safetensors.torch import load_file

            return cfg, load_file(folder / "model.safetensors")

    from transformers import AutoConfig, GPT2LMHeadModel

    try:
        cfg = cfg or _parse_config(AutoConfig.from_pretrained(where).to_dict(), where)
        return cfg, GPT2LMHeadModel.from_pretrained(where).state_dict()
    except OSError as error:
        reason = str(error).partition("\n")[0]  # transformers writes essays
        raise FileNotFoundError(f"`{where}` has no model to load: {reason}") from error


def _parse_config(config: dict[str, Any], where: str) -> Config:
    """Take our five sizes from a Hugging Face config; refuse a model that we would compute wrongly."""
    expected = {
        "model_type": ("gpt2",),
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "layer_norm_epsilon": (1e-5,),
        "n_inner": (None, 4 * config.get("n_embd", 768)),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "tie_word_embeddings": (True,),
        "add_cross_attention": (False,),
    }
    for key, right in expected.items():
        value = config.get(key, right[0] if key != "model_type" else None)
        if value not in right:
            raise ValueError(f"`{where}` is not a GPT-2 that gpt2.py can compute: {key} is `{value}`")
    return Config(
        n_layer=config.get("n_layer", 12),
        n_head=config.get("n_head", 12),
        n_embd=config.get("n_embd", 768),
        block_size=config.get("n_positions", 1024),
        vocab_size=config.get("vocab_size", 50257),
    )
