"""The roofline against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader import hardware, memory, roofline
from grader.hardware import Figure, HardwareProfile
from grader.memory import Shape
from grader.roofline import Roof, Roofline

PROFILES = {p.name: p for p in hardware.load_all(Path(__file__).resolve().parents[1] / "hardware_profiles")}
GPT2 = memory.find("gpt2")
TINY = Shape(
    "tiny", "T", 2, 3, 3, 5, 15, 60, False, 7, True, 1000, 100, "by hand"
)  # L 2, H 3, D 5, C 15, V 7
TINY_N_P = 2 * (4 * 15 * 15 + 2 * 15 * 60) + 7 * 15  # 5,505


def profile(**figures: float) -> HardwareProfile:
    made = {name: Figure(value, "spec", "by hand") for name, value in figures.items()}
    peak = {"float32": made.pop("peak")} if "peak" in made else {}
    return HardwareProfile("box", "A box.", "generic", peak_tflops=peak, **made)  # type: ignore[arg-type]


def test_gpt2s_weights_in_float32_take_1_8_ms_on_the_m4_pro() -> None:
    """498 MB at 273 GB/s."""
    line = roofline.under(PROFILES["mac-m4pro-cpu"], GPT2, "float32")
    assert line is not None
    assert line.weight_bytes == 497_759_232
    assert round(line.roof.reading_ms(line.weight_bytes), 1) == 1.8


def test_gpt2_has_123_532_032_numbers_in_its_matrices() -> None:
    """12 × 12 × 768² + 50,257 × 768."""
    assert roofline.linear_parameters(GPT2) == 84_934_656 + 38_597_376
    assert roofline.linear_flops(GPT2) == 247_064_064
    assert roofline.attention_flops(GPT2, 1000) == 4 * 12 * 768 * 1000


def test_llama_3_1_8bs_matrices() -> None:
    """32 × (2 × 4096² + 2 × 4096 × 1024 + 3 × 4096 × 14336) + 128,256 × 4096."""
    assert roofline.linear_parameters(memory.find("llama-3.1-8b")) == 7_504_658_432


def test_a_cached_step_reads_weights_and_cache() -> None:
    """4,000 bytes of weights, 7 positions of 2 × 2 × 3 × 5 × 4 bytes, at 0.001 GB/s: 5.68 ms; 3 ms on top."""
    line = Roofline(TINY, "float32", Roof(0.001, None, 3.0))
    assert line.cached_ms(7) == pytest.approx(3 + (4000 + 7 * 240) / 1e6 * 1e3)


def test_a_cached_step_may_be_bound_by_arithmetic() -> None:
    line = Roofline(TINY, "float32", Roof(1e6, 1e-6))
    assert line.cached_ms(7) == pytest.approx((2 * TINY_N_P + 4 * 2 * 15 * 7) / 1e6 * 1e3)


def test_an_uncached_step_computes_every_position_against_all() -> None:
    line = Roofline(TINY, "float32", Roof(1e6, 1e-6, 2.0))
    assert line.uncached_ms(7) == pytest.approx(2 + 7 * (2 * TINY_N_P + 4 * 2 * 15 * 7) / 1e6 * 1e3)


def test_a_short_uncached_step_reads_the_weights_all_the_same() -> None:
    line = Roofline(TINY, "float32", Roof(0.001, 1e3))
    assert line.uncached_ms(1) == line.uncached_ms(2) == pytest.approx(4.0)


def test_the_uncached_curve_bends_at_219_positions_on_a_gb10() -> None:
    """497,759,232 bytes at 273 GB/s last 1.823 ms; 247,064,064 operations at 29.7 TFLOP/s last 8.319 µs."""
    line = roofline.under(PROFILES["dgx-spark-gb10"], GPT2, "float32")
    assert line is not None
    assert line.ridge == pytest.approx(219.2, abs=0.1)
    flat, bent = line.uncached_ms(100), line.uncached_ms(400)
    assert flat is not None
    assert bent is not None
    assert flat == line.uncached_ms(1)
    assert bent > 1.5 * flat


def test_without_a_known_peak_nothing_is_said_of_uncached_steps() -> None:
    line = roofline.under(profile(bandwidth_gb_s=100.0), GPT2, "float32")
    assert line is not None
    assert (line.ridge, line.uncached_ms(5)) == (None, None)


def test_a_peak_counts_for_its_own_dtype_only() -> None:
    line = roofline.under(profile(bandwidth_gb_s=100.0, peak=1.0), GPT2, "bfloat16")
    assert line is not None
    assert line.ridge is None


def test_reading_gpt2s_cache_outweighs_its_weights_at_6_751_positions() -> None:
    line = Roofline(GPT2, "float32", Roof(1.0))
    assert line.crossover() == pytest.approx(497_759_232 / 73_728)
    assert line.cached_ms(6752) > 2 * line.roof.reading_ms(line.weight_bytes) > line.cached_ms(6751)


def test_sixteen_users_reach_the_crossover_sixteen_times_sooner() -> None:
    line = Roofline(GPT2, "float32", Roof(1.0))
    assert line.crossover(16) == line.crossover() / 16


def test_an_embedding_table_of_its_own_is_not_read() -> None:
    """Llama 3.1 8B in bfloat16: 16.06 GB less a table of 128,256 × 4096."""
    line = Roofline(memory.find("llama-3.1-8b"), "bfloat16", Roof(1.0))
    assert line.weight_bytes == 2 * (8_030_261_248 - 128_256 * 4096)
    assert line.crossover() == pytest.approx(114_516, abs=1)


def test_windows_move_the_crossover_or_take_it_away() -> None:
    assert Roofline(memory.find("mistral-7b"), "bfloat16", Roof(1.0)).crossover() == float("inf")
    gemma = Roofline(memory.find("gemma-2-9b"), "bfloat16", Roof(1.0))
    assert gemma.layout.bytes_of(round(gemma.crossover())) == pytest.approx(gemma.weight_bytes, rel=1e-4)
    assert gemma.crossover() > gemma.weight_bytes / gemma.layout.token_bytes


def test_the_overhead_is_the_profiles() -> None:
    line = roofline.under(PROFILES["mac-m4pro-mps"], GPT2, "float32")
    assert line is not None
    assert line.cached_ms(1) == pytest.approx(11.8, abs=0.1)


@pytest.mark.parametrize(
    ("box", "model", "dtype"),
    [
        (profile(), "gpt2", "float32"),
        (profile(bandwidth_gb_s=1.0), "deepseek-v3", "float32"),
        (profile(bandwidth_gb_s=1.0), "gpt2", "int3"),
    ],
)
def test_where_too_little_is_known_there_is_no_roofline(box: HardwareProfile, model: str, dtype: str) -> None:
    assert roofline.under(box, memory.find(model), dtype) is None
