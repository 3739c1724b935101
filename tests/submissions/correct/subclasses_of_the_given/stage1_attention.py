import torch
import torch.nn.functional as F

import gpt2


class Attention(gpt2.Attention):
    def forward(self, x, past=None):
        B, T, C = x.shape
        q, k, v = (
            part.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            for part in self.c_attn(x).split(C, dim=2)
        )
        if past is not None:
            k, v = (torch.cat(pair, dim=2) for pair in zip(past, (k, v)))
        mask = torch.ones(T, k.shape[2], dtype=torch.bool, device=x.device).tril(k.shape[2] - T)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C)), (k, v)


class Block(gpt2.Block):
    def __init__(self, cfg):
        super().__init__(cfg)
        self.attn = Attention(cfg)

    def forward(self, x, past=None):
        y, kv = self.attn(self.ln_1(x), past)
        x = x + y
        return x + self.mlp(self.ln_2(x)), kv


class GPT(gpt2.GPT):
    def __init__(self, cfg):
        super().__init__(cfg)
        for i in range(cfg.n_layer):
            self.h[i] = Block(cfg)

    def forward(self, idx, past=None):
        P = past[0][0].shape[2] if past is not None else 0
        S = P + idx.shape[1]
        if S > self.cfg.block_size:
            raise ValueError(f"`{S}` positions are more than block_size `{self.cfg.block_size}`")
        x = self.wte(idx) + self.wpe(torch.arange(P, S, device=idx.device))
        presents = []
        for i, block in enumerate(self.h):
            x, kv = block(x, past[i] if past is not None else None)
            presents.append(kv)
        return self.lm_head(self.ln_f(x)), presents
