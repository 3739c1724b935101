"""The oracle: `exercises/gpt2.py` computes what transformers' GPT-2 computes, however that is stored."""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported; nothing here may ask the network

EXERCISES = Path(__file__).resolve().parent.parent / "exercises"
SMALL = EXERCISES / "small"
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
DTYPES = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
SIZES = {"n_layer": 3, "n_head": 5, "n_embd": 35, "block_size": 23, "vocab_size": 29}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Compute on one thread: these sizes gain nothing from more, and a pool spins where cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def gpt2() -> Iterator[ModuleType]:
    """Import the given model as a student's file would, and leave no trace of it."""
    before = sys.modules.pop("gpt2", None)
    sys.path.insert(0, str(EXERCISES))
    try:
        yield importlib.import_module("gpt2")
    finally:
        sys.path.remove(str(EXERCISES))
        del sys.modules["gpt2"]
        if before is not None:
            sys.modules["gpt2"] = before


def make_theirs(seed: int = 7, **changes: Any) -> Any:
    """Build transformers' GPT-2 with weights wide enough that every part of it shows in the logits."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {
        **SIZES,
        "n_positions": SIZES["block_size"],
        "bos_token_id": None,
        "eos_token_id": None,
        **changes,
    }
    del sizes["block_size"]
    theirs = GPT2LMHeadModel(GPT2Config(**sizes)).eval()
    generator = torch.Generator().manual_seed(seed)
    for p in theirs.parameters():
        p.data = torch.randn(p.shape, generator=generator) * 0.2
    return theirs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Save a small random GPT-2 the way transformers does."""
    make_theirs().save_pretrained(tmp_path)
    return tmp_path


def draw_ids(*shape: int) -> torch.Tensor:
    return torch.randint(SIZES["vocab_size"], shape, generator=torch.Generator().manual_seed(3))


def assert_agree(ours: torch.nn.Module, theirs: Any, idx: torch.Tensor, dtype: torch.dtype) -> None:
    """Compare logits, the error measured against the largest of them."""
    ours, theirs = ours.to(dtype), theirs.to(dtype)
    with torch.no_grad():
        got, expected = ours(idx), theirs(idx).logits
    assert got.dtype == dtype
    assert (got - expected).abs().max() <= TOLERANCE[dtype] * max(1.0, float(expected.abs().max()))


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_weights(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    save_file({key: w.contiguous().clone() for key, w in weights.items()}, folder / "model.safetensors")


@DTYPES
@pytest.mark.parametrize("shape", [(2, 7), (3, 1), (1, SIZES["block_size"])])
def test_logits_agree_with_transformers(
    gpt2: ModuleType, folder: Path, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    assert_agree(gpt2.GPT.from_pretrained(folder), make_theirs(), draw_ids(*shape), dtype)


@DTYPES
def test_small_model_agrees_with_transformers(gpt2: ModuleType, dtype: torch.dtype) -> None:
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(SMALL)
    idx = torch.randint(256, (2, 73), generator=torch.Generator().manual_seed(3))
    assert_agree(gpt2.GPT.from_pretrained(SMALL), theirs, idx, dtype)


def test_small_model_has_learnt_its_shakespeare(gpt2: ModuleType) -> None:
    text = "Whether 'tis nobler in the mind to suffer the slings and arrows of outrageous fortune"
    idx = torch.tensor([list(text.encode())])
    with torch.no_grad():
        logits = gpt2.GPT.from_pretrained(SMALL)(idx)
    nats = torch.nn.functional.cross_entropy(logits[0, :-1], idx[0, 1:]).item()
    assert nats < math.log(256) / 2


def test_small_model_folder_stays_within_8_mb() -> None:
    assert sum(path.stat().st_size for path in SMALL.iterdir()) <= 8e6


@pytest.mark.parametrize(
    "text", ["To be, or not to be", "  two spaces\n\n\tand a tab ", "naïve – 北京 🎭", "don't", ""]
)
def test_small_tokenizer_gives_bytes_and_gives_them_back(text: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(SMALL)
    ids = tokenizer(text)["input_ids"]
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text


def test_small_tokenizer_knows_all_256_bytes() -> None:
    from transformers import AutoTokenizer

    assert len(AutoTokenizer.from_pretrained(SMALL)) == 256


@pytest.mark.parametrize("layout", ["no prefix", "with head", "old masks", "sharded", "bin"])
def test_every_layout_of_a_checkpoint_loads_alike(gpt2: ModuleType, folder: Path, layout: str) -> None:
    theirs, single = make_theirs(), folder / "model.safetensors"
    weights = load_file(single)
    if layout == "no prefix":
        edit_weights(folder, {key.removeprefix("transformer."): w for key, w in weights.items()})
    elif layout == "with head":
        edit_weights(folder, {**weights, "lm_head.weight": weights["transformer.wte.weight"]})
    elif layout == "old masks":
        mask = {"transformer.h.0.attn.bias": torch.ones(1, 1, 23, 23).tril()}
        edit_weights(folder, {**weights, **mask, "transformer.h.0.attn.masked_bias": torch.tensor(-1e4)})
    elif layout == "sharded":
        single.unlink()
        theirs.save_pretrained(folder, max_shard_size="50KB")
        assert not single.exists()
    elif layout == "bin":
        single.unlink()
        torch.save(theirs.state_dict(), folder / "pytorch_model.bin")
    assert_agree(gpt2.GPT.from_pretrained(str(folder)), theirs, draw_ids(2, 7), torch.float64)


def test_half_precision_checkpoint_loads_as_float32(gpt2: ModuleType, folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    edit_weights(folder, {key: w.bfloat16() for key, w in weights.items()})
    model = gpt2.GPT.from_pretrained(folder)
    assert model.wpe.weight.dtype == torch.float32
    assert torch.equal(model.wpe.weight, weights["transformer.wpe.weight"].bfloat16().float())


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "llama"},
        {"model_type": None},
        {"activation_function": "relu"},
        {"layer_norm_epsilon": 1e-6},
        {"n_inner": 71},
        {"scale_attn_weights": False},
        {"scale_attn_by_inverse_layer_idx": True},
        {"tie_word_embeddings": False},
    ],
    ids=str,
)
def test_model_that_would_be_computed_wrongly_is_refused_in_one_line(
    gpt2: ModuleType, folder: Path, change: dict[str, Any]
) -> None:
    edit_config(folder, **change)
    with pytest.raises(ValueError, match=f"{next(iter(change))} is `") as caught:
        gpt2.GPT.from_pretrained(folder)
    assert "\n" not in str(caught.value)


def test_folder_without_config_is_refused_in_one_line(gpt2: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is not a GPT-2 folder: it has no config\.json\Z"):
        gpt2.GPT.from_pretrained(tmp_path)


def test_folder_without_weights_is_refused_in_one_line(gpt2: ModuleType, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no model to load: .*\Z"):
        gpt2.GPT.from_pretrained(folder)


@pytest.mark.parametrize("name", ["./no/such/folder", "no-such-gpt2"])
def test_name_of_nothing_is_refused_in_one_line(gpt2: ModuleType, name: str) -> None:
    with pytest.raises(FileNotFoundError, match=rf"`{name}` has no model to load: .*\Z"):
        gpt2.GPT.from_pretrained(name)


def test_missing_weight_is_named(gpt2: ModuleType, folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["transformer.h.1.mlp.c_fc.bias"]
    edit_weights(folder, weights)
    with pytest.raises(ValueError, match=r"it has no `h\.1\.mlp\.c_fc\.bias`"):
        gpt2.GPT.from_pretrained(folder)


def test_weight_of_another_shape_is_named(gpt2: ModuleType, folder: Path) -> None:
    edit_config(folder, n_positions=19)
    with pytest.raises(ValueError, match=r"`wpe\.weight` must be `\(19, 35\)`, not `\(23, 35\)`"):
        gpt2.GPT.from_pretrained(folder)


def test_loaded_model_is_in_eval_mode(gpt2: ModuleType, folder: Path) -> None:
    assert not gpt2.GPT.from_pretrained(folder).training


def test_fresh_weights_have_gpt2s_spread_and_a_tied_head(gpt2: ModuleType) -> None:
    torch.manual_seed(5)
    model = gpt2.GPT(gpt2.Config(n_layer=2, n_head=5, n_embd=70, block_size=31, vocab_size=37))
    assert model.lm_head.weight is model.wte.weight
    assert model.h[1].mlp.c_fc.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert model.h[1].mlp.c_proj.weight.std().item() == pytest.approx(0.01, rel=0.1)
    assert not model.h[1].mlp.c_fc.bias.any()


def test_config_refuses_a_width_that_heads_do_not_divide(gpt2: ModuleType) -> None:
    with pytest.raises(ValueError, match="n_embd `35` must be a multiple of n_head `4`"):
        gpt2.Config(n_embd=35, n_head=4)


def test_one_position_too_many_raises_value_error(gpt2: ModuleType) -> None:
    model = gpt2.GPT(gpt2.Config(**SIZES))
    with pytest.raises(ValueError, match="`24` positions are more than block_size `23`"):
        model(draw_ids(1, 24))


def test_generate_nocache_picks_the_best_next_token_at_every_step(gpt2: ModuleType, folder: Path) -> None:
    model = gpt2.GPT.from_pretrained(folder).double()
    tokens = gpt2.generate_nocache(model, draw_ids(3, 5), 7)
    assert tokens.shape == (3, 12)
    assert torch.equal(tokens[:, :5], draw_ids(3, 5))
    with torch.no_grad():
        assert torch.equal(model(tokens)[:, 4:-1].argmax(-1), tokens[:, 5:])


def test_generate_nocache_leaves_the_prompt_alone(gpt2: ModuleType, folder: Path) -> None:
    idx = draw_ids(2, 5)
    gpt2.generate_nocache(gpt2.GPT.from_pretrained(folder), idx, 3)
    assert torch.equal(idx, draw_ids(2, 5))


def test_generate_nocache_of_nothing_gives_the_prompt(gpt2: ModuleType) -> None:
    assert torch.equal(
        gpt2.generate_nocache(gpt2.GPT(gpt2.Config(**SIZES)), draw_ids(2, 5), 0), draw_ids(2, 5)
    )


def test_generate_nocache_builds_no_graph(gpt2: ModuleType) -> None:
    graphs = []

    class Spy(gpt2.GPT):
        def forward(self, idx: torch.Tensor) -> torch.Tensor:
            logits = super().forward(idx)
            graphs.append(logits.requires_grad)
            return logits

    gpt2.generate_nocache(Spy(gpt2.Config(**SIZES)), draw_ids(2, 5), 2)
    assert graphs == [False, False]


def test_generate_nocache_gives_a_tie_to_the_lowest_id(gpt2: ModuleType) -> None:
    model = gpt2.GPT(gpt2.Config(**SIZES))
    torch.nn.init.zeros_(model.wte.weight)  # every logit is 0
    assert torch.equal(
        gpt2.generate_nocache(model, draw_ids(2, 3), 5)[:, 3:], torch.zeros(2, 5, dtype=torch.int64)
    )
