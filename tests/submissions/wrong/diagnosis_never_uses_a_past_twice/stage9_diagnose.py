"""Ten questions to a model, the most telling first."""

import torch

KINDS = ("ok", "position", "no-mask", "square-mask", "stale-cache", "other")


class Suspect:
    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg
        self.n = min(cfg.block_size, 12)
        self.P = self.n // 2
        generator = torch.Generator().manual_seed(1)
        self.idx = torch.randint(cfg.vocab_size, (3, self.n), generator=generator)

    def near(self, a, b):
        tolerance = 1e-6 if b.dtype == torch.float64 else 5e-5
        return a.shape == b.shape and bool((a - b).abs().max() <= tolerance * b.abs().max())

    def call(self, idx, past=None):
        return self.model(idx, past)

    def fed(self, idx, pieces):
        out, past = [], None
        for piece in idx.split(pieces, dim=1):
            logits, past = self.call(piece, past)
            out.append(logits)
        return torch.cat(out, dim=1), past

    def other_end(self):
        """The text with another last token."""
        idx = self.idx.clone()
        idx[:, -1] = (idx[:, -1] + 1) % self.cfg.vocab_size
        return idx

    def diagnose(self):
        n, P, idx = self.n, self.P, self.idx
        full, presents = self.call(idx)

        # who hears the last token of a call?
        moved, _ = self.call(self.other_end())
        if not self.near(moved[:, 0], full[:, 0]):
            return "no-mask"
        if not self.near(moved[:, :-1], full[:, :-1]):
            return "other"

        # one token on a past
        _, past = self.call(idx[:, :P])
        step, grown = self.call(idx[:, P : P + 1], past)
        right = self.near(step, full[:, P : P + 1])
        if grown[0][0].shape[2] == P:
            return "stale-cache" if right else "other"
        key, wanted = grown[0][0][:, :, P], presents[0][0][:, :, P]
        if not self.near(key, wanted):
            alone = self.call(idx[:, P : P + 1])[1][0][0][:, :, 0]
            return "position" if self.near(key, alone) else "other"
        if not right:
            return "other"

        # several tokens on a past
        _, past = self.call(idx[:, :P])
        chunk, whole = self.call(idx[:, P:], past)
        _, past = self.call(idx[:, :P])
        if not self.near(chunk, full[:, P:]):
            return self.wrong_chunk(past, chunk)
        if not all(self.near(a, b) for pair, want in zip(whole, presents) for a, b in zip(pair, want)):
            return "other"

        # everything once more, in other ways
        again, _ = self.call(idx[:, P : P + 1], past)
        alone, _ = self.call(idx[1:2])
        for pieces in ([1] * n, [2, 3] + [1] * (n - 5)):
            logits, kept = self.fed(idx, pieces)
            if not self.near(logits, full) or not self.near(kept[-1][1], presents[-1][1]):
                return "other"
        return "ok" if self.near(again, step) and self.near(alone, full[1:2]) else "other"

    def wrong_chunk(self, past, chunk):
        """Does the first query see key 0 and no other?"""
        P, idx = self.P, self.idx
        hidden = [tuple(torch.cat([t[:, :, :1], t[:, :, 1:].flip(2) * 2], dim=2) for t in pair) for pair in past]
        first = [tuple(torch.cat([t[:, :, :1] * 2, t[:, :, 1:]], dim=2) for t in pair) for pair in past]
        deaf = self.near(self.call(idx[:, P:], hidden)[0][:, 0], chunk[:, 0])
        hears = not self.near(self.call(idx[:, P:], first)[0][:, 0], chunk[:, 0])
        if deaf and hears:
            return "square-mask"
        moved, _ = self.call(self.other_end()[:, P:], past)
        return "other" if self.near(moved[:, 0], chunk[:, 0]) else "no-mask"


@torch.no_grad()
def diagnose(model, cfg):
    try:
        return Suspect(model, cfg).diagnose()
    except Exception:
        return "other"
