import math

import torch
import torch.nn as nn
from torch.utils.weak import WeakTensorKeyDictionary

STEP = 16  # positions of room added at a time


class Store:
    """A tensor (B, H, room, D) that knows how many of its positions are taken."""

    newest = WeakTensorKeyDictionary()  # the last view handed out of each store -> that store

    def __init__(self, B, H, D, like):
        self.data = like.new_zeros(B, H, 0, D)
        self.length = 0

    @classmethod
    def behind(cls, view, new):
        """Find the store that may be extended behind `view`, else start one with a copy of it."""
        if view is not None and (owner := cls.newest.pop(view, None)) is not None:
            return owner
        B, H, _, D = new.shape
        store = cls(B, H, D, new)
        if view is not None:
            store.extend(view)
        return store

    def extend(self, new):
        stop = self.length + new.shape[2]
        if stop > self.data.shape[2]:
            room = math.ceil(stop / STEP) * STEP - self.length
            more = new.new_zeros(*new.shape[:2], room, new.shape[3])
            self.data = torch.cat([self.data[:, :, : self.length], more], dim=2)
        with torch.no_grad():
            self.data[:, :, self.length : stop] = new
        self.length = stop
        view = self.data[:, :, :stop]
        type(self).newest[view] = self
        return view


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head = cfg.n_head
        self.head_dim = cfg.n_embd // cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x, past=None):
        B, T, _ = x.shape
        qkv = self.c_attn(x).view(B, T, 3, self.n_head, self.head_dim)
        q, k, v = (t.transpose(1, 2) for t in qkv.unbind(2))
        old_k, old_v = past if past is not None else (None, None)
        all_k = Store.behind(old_k, k).extend(k)
        all_v = Store.behind(old_v, v).extend(v)
        if past is not None:  # else attend to k and v themselves, so that training works too
            k, v = all_k, all_v
        scores = q @ k.transpose(2, 3) / self.head_dim**0.5
        blind = torch.full((T, k.shape[2]), True, device=x.device).triu(k.shape[2] - T + 1)
        weights = scores.masked_fill(blind, float("-inf")).softmax(3)
        return self.c_proj((weights @ v).transpose(1, 2).reshape(B, T, -1)), (all_k, all_v)


class MLP(nn.Sequential):
    def __init__(self, cfg):
        super().__init__()
        self.c_fc = nn.Linear(cfg.n_embd, 4 * cfg.n_embd)
        self.act = nn.GELU("tanh")
        self.c_proj = nn.Linear(4 * cfg.n_embd, cfg.n_embd)


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln_1 = nn.LayerNorm(cfg.n_embd)
        self.attn = Attention(cfg)
        self.ln_2 = nn.LayerNorm(cfg.n_embd)
        self.mlp = MLP(cfg)

    def forward(self, x, past=None):
        y, present = self.attn(self.ln_1(x), past)
        x = x + y
        return x + self.mlp(self.ln_2(x)), present


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.h = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layer))
        self.ln_f = nn.LayerNorm(cfg.n_embd)
        self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx, past=None):
        past = [None] * len(self.h) if past is None else past
        P = 0 if past[0] is None else past[0][0].size(2)
        T = idx.size(1)
        if P + T > self.cfg.block_size:
            raise ValueError(f"no position {P + T - 1}: block_size is {self.cfg.block_size}")
        x = self.wte(idx) + self.wpe.weight.narrow(0, P, T)
        presents = []
        for block, pair in zip(self.h, past):
            x, present = block(x, pair)
            presents.append(present)
        return self.lm_head(self.ln_f(x)), presents
