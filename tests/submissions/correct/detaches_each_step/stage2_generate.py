from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

import torch


@dataclass
class Writer:
    """The text so far, what of it the model has not seen, and what the model remembers of the rest."""

    text: torch.Tensor
    unseen: torch.Tensor = field(init=False)
    past: Optional[list] = None

    def __post_init__(self) -> None:
        self.unseen = self.text

    def write(self, model) -> Writer:
        logits, presents = model(self.unseen, past=self.past)
        self.past = [(k.detach(), v.detach()) for k, v in presents]
        self.unseen = logits.detach()[:, -1].argmax(dim=1, keepdim=True)
        self.text = torch.cat([self.text, self.unseen], dim=1)
        return self


def generate_cache(model, idx: torch.Tensor, n_new: int):
    writer = Writer(idx)
    for _ in range(n_new):
        writer.write(model)
    return writer.text, writer.past


def first_mismatch(a: torch.Tensor, b: torch.Tensor) -> Optional[int]:
    n = min(a.shape[-1], b.shape[-1])
    rows, columns = torch.where(a[:, :n] != b[:, :n])
    if columns.numel():
        return int(columns.min())
    if a.shape[-1] != b.shape[-1]:
        return n
    return None
