"""`grade measure hf`: models of transformers, their caches in every spelling, and what it refuses."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported; nothing here may ask the network

from grader import bench, decoding, measure, measure_hf
from grader.cli import cli
from grader.decoding import Effort
from grader.measure_hf import Pretrained

ROOT = Path(__file__).resolve().parents[1]
POSITIONS, PROMPT = 37, 12
LLAMA = {"num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 36}
GPT2 = {"n_layer": 2, "n_head": 3, "n_embd": 21, "n_positions": POSITIONS}
BYTES = {
    "llama": 2 * 3 * 2 * 6,
    "gpt2": 2 * 2 * 3 * 7,
}  # numbers a position: k and v, layers, kv heads, head size

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
Grade = Callable[..., Result]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small Llama with fewer key/value heads than heads, and a small GPT-2, as save_pretrained writes."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    root = tmp_path_factory.mktemp("hub")
    torch.manual_seed(7)
    rope = {"max_position_embeddings": POSITIONS, "intermediate_size": 31, "vocab_size": 53}
    ends = {"bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.5}
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, **rope, **ends))
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2, vocab_size=53, **ends))
    llama.save_pretrained(root / "llama")
    gpt2.save_pretrained(root / "gpt2-tiny")
    return {"llama": root / "llama", "gpt2": root / "gpt2-tiny"}


@pytest.fixture(params=["llama", "gpt2"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(folders: dict[str, Path], kind: str) -> Pretrained:
    return measure_hf.load(str(folders[kind]), torch.device("cpu"), torch.float64)


@pytest.fixture
def text(model: Pretrained) -> torch.Tensor:
    return bench.sample_text(POSITIONS, model.shape.vocab_size, PROMPT, model.device)


@pytest.fixture
def grade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grade:
    monkeypatch.setattr(measure, "QUICK", Effort(0.0, 2, 2))

    def run(*options: str) -> Result:
        arguments = ["--course", str(ROOT), "measure", "hf", "--quick", "--out", str(tmp_path), *options]
        return CliRunner().invoke(cli, arguments)

    return run


def rows(folder: Path, table: str) -> list[dict[str, str]]:
    with (folder / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_folder_is_measured_like_the_students_model(
    grade: Grade, folders: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    result = grade("--model", str(folders[kind]))
    assert (result.exit_code, result.exception) == (0, None)
    assert "Tokens: the same 25 with the cache and without." in result.output
    assert "transformers " in result.output
    steps = [(r["mode"], r["position"]) for r in rows(tmp_path, "latency")]
    assert steps == [(mode, position) for position in ("1", "36") for mode in ("cached", "uncached")]
    held = rows(tmp_path, "memory")
    assert [int(r["cache_bytes"]) for r in held] == [4 * BYTES[kind] * int(r["position"]) for r in held]
    assert [r["cache_bytes"] for r in held] == [r["formula_bytes"] for r in held]
    assert [r["mode"] for r in rows(tmp_path, "total")] == ["cached", "uncached"]


def test_with_and_without_the_cache_the_logits_are_the_same(model: Pretrained, text: torch.Tensor) -> None:
    with torch.no_grad():
        past = decoding.prefilled(model, text, 20)
        logits, past = model.cached(text[:, 20:23], past)
        torch.testing.assert_close(logits, model.uncached(text[:, :23])[:, 20:])
    assert model.positions(past) == 23


def test_use_cache_decides_whether_generate_keeps_one(model: Pretrained, text: torch.Tensor) -> None:
    tokens, past = model.write(text[:, :PROMPT], 9, cached=True)
    assert tokens.shape == (1, PROMPT + 9)
    assert model.positions(past) == PROMPT + 8
    assert model.write(text[:, :PROMPT], 9, cached=False)[1] is None


def test_the_end_token_does_not_end_the_text(model: Pretrained, text: torch.Tensor) -> None:
    tokens, _ = model.write(text[:, :PROMPT], 1, cached=True)
    model.model.generation_config.eos_token_id = int(tokens[0, -1])
    assert model.write(text[:, :PROMPT], 9, cached=True)[0].shape[1] == PROMPT + 1  # so it would
    again = measure_hf.load(model.model.name_or_path, model.device, model.dtype)
    assert again.model.generation_config.eos_token_id is None


K, V = torch.zeros(1, 2, 5, 3), torch.ones(1, 2, 5, 3)


@pytest.mark.parametrize(
    "cache",
    [
        SimpleNamespace(layers=[SimpleNamespace(keys=K, values=V)] * 2),
        SimpleNamespace(key_cache=[K, K], value_cache=[V, V]),
        ((K, V), (K, V)),
        [(K, V, None), (K, V, None)],
    ],
    ids=["5.x", "4.x", "tuples", "triples"],
)
def test_a_cache_is_read_in_every_spelling(cache: Any, model: Pretrained) -> None:
    found = measure_hf.pairs(cache)
    assert [(k is K, v is V) for k, v in found] == [(True, True)] * 2
    assert model.cache_bytes(cache) == 4 * K.nbytes
    assert model.positions(cache) == 5


class Falsy(list[Any]):
    """An empty cache counts as false."""


@pytest.mark.parametrize("cache", [Falsy(), [1]])
def test_the_cache_of_an_output_is_found_under_both_names(cache: Any) -> None:
    assert measure_hf.cache_of(SimpleNamespace(cache=cache)) is cache
    assert measure_hf.cache_of(SimpleNamespace(past_key_values=cache)) is cache
    assert measure_hf.cache_of(SimpleNamespace(cache=cache, past_key_values=None)) is cache


def test_forward_is_handed_a_cache_under_the_name_that_it_knows() -> None:
    assert measure_hf.argument_of(SimpleNamespace(forward=lambda input_ids, cache: 0)) == "cache"
    assert measure_hf.argument_of(SimpleNamespace(forward=lambda i, past_key_values: 0)) == "past_key_values"


def test_texts_that_differ_say_where(model: Pretrained) -> None:
    a = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 4]])
    b = torch.tensor([[1, 2, 3, 9], [1, 8, 3, 4]])
    assert model.first_mismatch(a, b) == 1
    assert model.first_mismatch(a, a) is None


def test_without_transformers_what_to_install_is_said(grade: Grade, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    result = grade()
    assert result.exit_code == 2
    assert "pip install -e '.[hf]'" in result.output


@pytest.mark.parametrize("name", ["nowhere/at-all", str(ROOT / "docs")])
def test_a_model_that_is_not_there_is_said_in_one_line(name: str, grade: Grade) -> None:
    result = grade("--model", name)
    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert "go online once" in result.output
