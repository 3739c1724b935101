import torch
from stage1_attention import GPT


class OffsetBugGPT(GPT):
    def forward(self, idx, past=None):
        P = past[0][0].size(2) if past is not None else 0
        hook = self.wpe.register_forward_pre_hook(lambda module, args: (args[0] - P,))
        try:
            return super().forward(idx, past)
        finally:
            hook.remove()


@torch.no_grad()
def first_bad_step(model, idx, n_new):
    """Write both texts to the end, then compare them."""

    def cached():
        logits, past = model(idx)
        for _ in range(n_new - 1):
            token = logits[:, -1].argmax(-1)
            yield token
            logits, past = model(token.unsqueeze(1), past)
        yield logits[:, -1].argmax(-1)

    def uncached():
        text = idx
        for _ in range(n_new):
            token = model(text)[0][:, -1].argmax(-1)
            yield token
            text = torch.cat((text, token.unsqueeze(1)), dim=1)

    if n_new == 0:
        return None
    bad = [step for step, (a, b) in enumerate(zip(cached(), uncached())) if (a != b).any()]
    return bad[0] if bad else None
