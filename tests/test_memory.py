"""The memory calculator: published figures to the byte, models whose sizes add up, faults in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from grader import memory
from grader.cli import cli
from grader.errors import CourseError
from grader.memory import BYTES, Cost, Question, Shape

ROOT = Path(__file__).resolve().parent.parent
KIB, MIB = 1024, 1024**2
SHAPES = memory.shapes()
CONV1D_BIASES = (
    9  # widths of bias in a GPT-2 layer: 3 for q, k, v, 1 for their joint output, 4 and 1 in the MLP
)


def cost(model: str, context: str, **options: int | str) -> Cost:
    question = Question(memory.find(model), memory.tokens(context), **options)  # type: ignore[arg-type]
    return memory.footprint(question).cache


def grade_memory(arguments: str = "") -> Result:
    return CliRunner().invoke(cli, ["memory", *arguments.split()], env={"COLUMNS": "100"})


# ---- the figures that it must reproduce


def test_llama_3_1_8b_keeps_128_kib_a_token() -> None:
    assert cost("llama-3.1-8b", "128k").token_bytes == 128 * KIB


def test_llama_2_7b_keeps_512_kib_a_token() -> None:
    assert cost("llama-2-7b", "4k").token_bytes == 512 * KIB


def test_mistral_7b_keeps_512_mib_however_long_the_text() -> None:
    assert cost("mistral-7b", "4k").user_bytes == 512 * MIB
    assert cost("mistral-7b", "32k").user_bytes == 512 * MIB
    assert cost("mistral-7b", "4095").user_bytes == 512 * MIB - 128 * KIB


def test_llama_3_8b_keeps_1_1_gb_at_8k() -> None:
    assert round(cost("llama-3-8b", "8k").user_bytes / 1e9, 1) == 1.1


@pytest.mark.parametrize("model", ["llama-2-70b", "llama-3.1-70b"])
@pytest.mark.parametrize(
    ("context", "kv_heads", "gb"), [("8k", None, 86), ("128k", None, 1374), ("8k", 64, 687)]
)
def test_70b_at_batch_32(model: str, context: str, kv_heads: int | None, gb: int) -> None:
    asked = {} if kv_heads is None else {"kv_heads": kv_heads}
    assert round(cost(model, context, users=32, **asked).total_bytes / 1e9) == gb


def test_gpt2_small_in_float32_to_the_byte() -> None:
    cache = cost("gpt2", "1011", dtype="float32")
    assert (cache.token_bytes, cache.user_bytes) == (73_728, 74_539_008)


def test_deepseek_v3_keeps_70_272_bytes_a_token() -> None:
    """DeepSeek-AI 2025, arXiv 2505.09343, table 1: 70.272 KB."""
    assert cost("deepseek-v3", "1").token_bytes == 70_272


# ---- the arithmetic


def test_a_window_counts_only_in_the_layers_that_have_one() -> None:
    """Gemma 2 9B: 21 layers keep 8,192 positions and 21 keep 4,096, of 2 × 8 × 256 numbers of 2 bytes."""
    assert cost("gemma-2-9b", "8k").user_bytes == 2 * 8 * 256 * 2 * (21 * 8192 + 21 * 4096)


def test_a_window_can_be_asked_for_and_switched_off() -> None:
    assert cost("llama-2-7b", "4k", window=100).user_bytes == 100 * 512 * KIB
    assert cost("mistral-7b", "32k", window=0).user_bytes == 32 * 1024 * 128 * KIB


@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("float16", 2), ("fp8", 1), ("int8", 1)]
)
def test_weights_and_cache_follow_the_dtype(dtype: str, size: int) -> None:
    footprint = memory.footprint(Question(memory.find("gpt2"), 7, users=3, dtype=dtype))
    assert footprint.weight_bytes == size * 124_439_808
    assert footprint.cache.total_bytes == size * 3 * 7 * 2 * 12 * 12 * 64


def test_the_table_has_mha_gqa_mqa_a_window_and_int8() -> None:
    footprint = memory.footprint(Question(memory.find("llama-3.1-8b"), 128 * KIB))
    titles = {footprint.cache.title, *(cost.title for cost in footprint.others)}
    assert titles == {
        "MHA, 32 heads",
        "GQA, 8 heads",
        "MQA, 1 head",
        "GQA, 8 heads, window 4,096",
        "GQA, 8 heads, int8",
    }


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("kv_heads", [None, 1])
def test_no_way_to_keep_a_cache_is_listed_twice(name: str, kv_heads: int | None) -> None:
    footprint = memory.footprint(Question(SHAPES[name], SHAPES[name].context, kv_heads=kv_heads))
    titles = [footprint.cache.title, *(cost.title for cost in footprint.others)]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize(
    ("text", "number"), [("8192", 8192), ("8k", 8192), ("128K", 131_072), ("1m", 1_048_576)]
)
def test_numbers_of_tokens(text: str, number: int) -> None:
    assert memory.tokens(text) == number


@pytest.mark.parametrize("text", ["", "0", "0k", "-3", "8kb", "1.5k", "k", "٣", "8 k", "12345678901"])
def test_no_numbers_of_tokens(text: str) -> None:
    with pytest.raises(ValueError, match="no number of tokens"):
        memory.tokens(text)


# ---- the models


def parameters(shape: Shape) -> int:
    """All weights, added up from the sizes: embeddings, projections, MLP, norms, and biases if any."""
    width, layers = shape.width, shape.layers
    if not shape.gated:  # GPT-2: biases everywhere, two vectors a norm, learned positions
        matrices = 4 * width * width + 2 * width * shape.mlp_width
        layer = matrices + CONV1D_BIASES * width + 4 * width
        return (shape.vocab + shape.context) * width + layers * layer + 2 * width
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layer = 2 * width * queries + 2 * width * keys + 3 * width * shape.mlp_width + 2 * width
    layer += (queries + 2 * keys) * shape.name.startswith("qwen")  # biases of q, k and v
    layer += 2 * width * shape.name.startswith("gemma")  # norms after attention and MLP too
    return (1 if shape.tied else 2) * shape.vocab * width + layers * layer + width


@pytest.mark.parametrize("shape", [s for s in SHAPES.values() if not s.latent], ids=lambda s: s.name)
def test_a_models_sizes_add_up_to_its_parameters(shape: Shape) -> None:
    assert parameters(shape) == shape.parameters


def test_deepseek_v3s_sizes_add_up_to_its_parameters() -> None:
    """671 billion: 61 layers of latent attention, 3 dense, 58 mixtures of 256 experts and a shared one."""
    shape = SHAPES["deepseek-v3"]
    width, heads, q_rank, kv_rank, rope, head = shape.width, shape.heads, 1536, 512, 64, shape.head_dim
    attention = width * q_rank + q_rank + q_rank * heads * (head + rope) + width * (kv_rank + rope) + kv_rank
    attention += kv_rank * heads * 2 * head + heads * head * width
    mixture = 257 * 3 * width * 2048 + 256 * width + 256
    layers = 61 * (attention + 2 * width) + 3 * (3 * width * shape.mlp_width) + 58 * mixture
    assert layers + 2 * shape.vocab * width + width == shape.parameters
    assert shape.latent == kv_rank + rope


def test_the_small_models_shape_is_that_of_its_config() -> None:
    config = json.loads((ROOT / "exercises/small/config.json").read_text(encoding="utf-8"))
    shape = SHAPES["small"]
    assert (shape.layers, shape.heads, shape.width) == (config["n_layer"], config["n_head"], config["n_embd"])
    assert (shape.context, shape.vocab) == (config["n_positions"], config["vocab_size"])


def test_there_are_a_dozen_models_each_with_a_source() -> None:
    assert len(SHAPES) >= 12
    assert all(shape.source for shape in SHAPES.values())


GOOD = """
[[model]]
name = "m"
title = "M"
layers = 2
heads = 6
kv_heads = 3
head_dim = 5
width = 30
mlp_width = 60
gated = false
vocab = 7
tied = true
parameters = 99
context = 11
source = "s"
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[model", "models.toml"),
        (GOOD.replace('source = "s"\n', ""), "source"),
        (GOOD.replace('"s"', '" "'), "model `m`: it has no source"),
        (GOOD.replace("layers = 2", 'layers = "two"'), "layers"),
        (GOOD.replace("layers = 2", "layers = 0"), "layers is `0`"),
        (GOOD + "colour = 3\n", "colour"),
        (GOOD.replace("kv_heads = 3", "kv_heads = 4"), "4 key/value heads can't serve 6"),
        (GOOD + "window = 3\n", "window and windowed_layers"),
        (GOOD + "window = 3\nwindowed_layers = 3\n", "no more layers than there are"),
        (GOOD + GOOD, "two models have the same name"),
    ],
)
def test_a_wrong_list_of_models_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(CourseError) as caught:
        memory.parse(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_right_list_of_models_is_taken() -> None:
    assert memory.parse(GOOD)["m"].kv_heads == 3


# ---- the command


def test_the_command_answers_in_bytes_gb_and_gib() -> None:
    result = grade_memory("--model llama-3.1-8b --context 128k --users 16 --dtype bf16 --kv-heads 8")
    assert result.exit_code == 0
    for words in (
        "16,060,522,496 bytes  16.1 GB (15 GiB)",
        "131,072 bytes  131 kB (128 KiB)",
        "274,877,906,944 bytes  275 GB (256 GiB)",
        "→ GQA, 8 heads ",
        "GQA, 8 heads, int8 ",
        "arXiv 2407.21783",
    ):
        assert words in result.output


def test_the_models_own_heads_are_listed_beside_those_asked_for() -> None:
    result = grade_memory("--model llama-3.1-70b --context 8k --users 32 --kv-heads 64")
    (asked,) = (line for line in result.output.splitlines() if line.startswith("→ MHA, 64 heads"))
    (own,) = (line for line in result.output.splitlines() if line.startswith("  GQA, 8 heads"))
    assert "687 GB" in asked
    assert "85.9 GB" in own


def test_every_model_is_listed_and_can_be_asked_about() -> None:
    listed = grade_memory().output
    for name in SHAPES:
        assert f"\n{name} " in listed
        assert grade_memory(f"--model {name}").exit_code == 0


def test_a_text_longer_than_the_model_was_made_for_is_remarked_on() -> None:
    remark = "made for texts of 1,024 tokens at most"
    assert remark in grade_memory("--model gpt2 --context 2k").output
    assert remark not in grade_memory("--model gpt2 --context 1k").output


def test_the_answer_can_be_written_as_json(tmp_path: Path) -> None:
    path = tmp_path / "a" / "memory.json"
    assert grade_memory(f"--model gpt2 --context 1011 --dtype fp32 --json {path}").exit_code == 0
    assert json.loads(path.read_text(encoding="utf-8"))["cache"]["user_bytes"] == 74_539_008


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--model lama-3-8", "no model `lama-3-8`: did you mean `llama-3-8b`"),
        ("--model zzz", "no model `zzz`: `grade memory --model list` names all"),
        ("--model gpt2 --context many", "`many` is no number of tokens"),
        ("--model gpt2 --window -1", "`-1` is no number of tokens"),
        ("--model gpt2 --kv-heads 5", "5 key/value heads can't serve 12 query heads"),
        ("--model gpt2 --json /dev/null/x", "can't be written"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(arguments: str, words: str) -> None:
    result = grade_memory(arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert result.output.count("\n") == 1


def test_bytes_are_those_of_the_dtypes_that_profiles_know() -> None:
    from grader.hardware import BYTES_PER_NUMBER

    shared = BYTES.keys() & BYTES_PER_NUMBER.keys()
    assert {dtype: BYTES[dtype] for dtype in shared} == {dtype: BYTES_PER_NUMBER[dtype] for dtype in shared}
