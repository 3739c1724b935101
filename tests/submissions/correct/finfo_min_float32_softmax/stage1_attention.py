import torch
import torch.nn as nn


class NewGELU(nn.Module):
    def forward(self, x):
        c = (2.0 / torch.pi) ** 0.5
        return 0.5 * x * (1.0 + torch.tanh(c * (x + 0.044715 * torch.pow(x, 3.0))))


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.c_fc = nn.Linear(cfg.n_embd, 4 * cfg.n_embd)
        self.c_proj = nn.Linear(4 * cfg.n_embd, cfg.n_embd)
        self.act = NewGELU()

    def forward(self, hidden_states):
        return self.c_proj(self.act(self.c_fc(hidden_states)))


def prepare_causal_mask(query_length, key_length, dtype, device):
    min_value = torch.finfo(dtype).min
    mask = torch.full((query_length, key_length), min_value, dtype=dtype, device=device)
    query_position = torch.arange(key_length - query_length, key_length, device=device)
    mask *= torch.arange(key_length, device=device) > query_position.reshape(-1, 1)
    return mask[None, None]


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.num_heads = cfg.n_head
        self.head_dim = cfg.n_embd // cfg.n_head
        self.split_size = cfg.n_embd
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x, past=None):
        query, key, value = self.c_attn(x).split(self.split_size, dim=2)
        shape = (*query.shape[:-1], -1, self.head_dim)
        query, key, value = (t.view(shape).transpose(1, 2) for t in (query, key, value))
        if past is not None:
            key = torch.cat([past[0], key], dim=-2)
            value = torch.cat([past[1], value], dim=-2)

        attn_weights = torch.matmul(query, key.transpose(-1, -2))
        attn_weights = attn_weights / torch.full([], self.head_dim**0.5, dtype=x.dtype, device=x.device)
        mask = prepare_causal_mask(query.size(-2), key.size(-2), attn_weights.dtype, x.device)
        attn_weights = attn_weights + mask
        attn_weights = nn.functional.softmax(attn_weights, dim=-1, dtype=torch.float32).to(value.dtype)
        attn_output = torch.matmul(attn_weights, value).transpose(1, 2)
        attn_output = attn_output.reshape(*attn_output.shape[:-2], -1).contiguous()
        return self.c_proj(attn_output), (key, value)


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln_1 = nn.LayerNorm(cfg.n_embd, eps=1e-5)
        self.attn = Attention(cfg)
        self.ln_2 = nn.LayerNorm(cfg.n_embd, eps=1e-5)
        self.mlp = MLP(cfg)

    def forward(self, x, past=None):
        residual = x
        attn_output, present = self.attn(self.ln_1(x), past)
        x = attn_output + residual
        residual = x
        x = residual + self.mlp(self.ln_2(x))
        return x, present


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.h = nn.ModuleList([Block(cfg) for _ in range(cfg.n_layer)])
        self.ln_f = nn.LayerNorm(cfg.n_embd, eps=1e-5)
        self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx, past=None):
        if past is None:
            past = tuple([None] * len(self.h))
            past_length = 0
        else:
            past_length = past[0][0].size(-2)
        length = past_length + idx.size(-1)
        if length > self.cfg.block_size:
            raise ValueError(f"Sequence length {length} > n_positions {self.cfg.block_size}")
        position_ids = torch.arange(past_length, length, dtype=torch.long, device=idx.device).unsqueeze(0)
        hidden_states = self.wte(idx) + self.wpe(position_ids)
        presents = ()
        for block, layer_past in zip(self.h, past):
            hidden_states, present = block(hidden_states, layer_past)
            presents = presents + (present,)
        return self.lm_head(self.ln_f(hidden_states)), presents
