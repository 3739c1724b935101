"""The roofline: what a step must cost at least, from a machine's bandwidth and peak and a model's shape.

A step lasts as long as its slower half: reading what it needs from memory, or computing (Williams, Waterman
and Patterson 2009, doi 10.1145/1498765.1498785). Arithmetic is counted as in PaLM's appendix B (Chowdhery et
al. 2022, arXiv 2204.02311; a third of its figures, as nothing is trained here): 2·N_p operations a position
in the linear layers, N_p being the numbers in their matrices, the output's included, and 4·L·d·n in
attention for a query that sees n keys, d being the width of all its heads. Activations, which mostly stay in
the processor's own caches, and softmax, norms and GELU, which are few operations, are left out: a measured
step lies above.
"""

from __future__ import annotations

from dataclasses import dataclass

from grader import memory
from grader.hardware import HardwareProfile
from grader.memory import BYTES, Layout, Question, Shape


@dataclass(frozen=True, slots=True)
class Roof:
    """A machine for one dtype: 10⁹ bytes a second, 10¹² operations a second if known, ms on top of a step."""

    bandwidth_gb_s: float
    peak_tflops: float | None = None
    overhead_ms: float = 0.0

    def reading_ms(self, number: float) -> float:
        """How long it takes to read so many bytes."""
        return number / (self.bandwidth_gb_s * 1e6)

    def computing_ms(self, flops: float) -> float:
        """How long so many operations take; 0 where the peak is not known."""
        return flops / (self.peak_tflops * 1e9) if self.peak_tflops else 0.0


@dataclass(frozen=True, slots=True)
class Roofline:
    """What to expect of one model in one dtype under one roof, for a single text."""

    shape: Shape
    dtype: str
    roof: Roof

    @property
    def weight_bytes(self) -> int:
        """What a step reads of the weights: all, less an embedding table of which it looks up single rows."""
        looked_up = 0 if self.shape.tied else self.shape.vocab * self.shape.width
        return (self.shape.parameters - looked_up) * BYTES[self.dtype]

    @property
    def layout(self) -> Layout:
        """How the model keeps keys and values."""
        return memory.own_layout(Question(self.shape, self.shape.context, dtype=self.dtype))

    def cached_ms(self, position: int) -> float:
        """A step with the cache: one position computed, the weights and a cache of `position` read; ms."""
        read = self.weight_bytes + self.layout.bytes_of(position)
        computed = linear_flops(self.shape) + attention_flops(self.shape, position)
        return self.roof.overhead_ms + max(self.roof.reading_ms(read), self.roof.computing_ms(computed))

    def uncached_ms(self, position: int) -> float | None:
        """A step without: all `position` computed, each against all; ms, or None without a known peak."""
        if self.roof.peak_tflops is None:
            return None
        computed = position * (linear_flops(self.shape) + attention_flops(self.shape, position))
        return self.roof.overhead_ms + max(
            self.roof.reading_ms(self.weight_bytes), self.roof.computing_ms(computed)
        )

    @property
    def ridge(self) -> float | None:
        """The positions at which computing the linear layers takes as long as reading the weights.

        n = weight bytes × peak ÷ (2·N_p × bandwidth). Until there an uncached step costs the same however
        long the text, from there on it grows: the curve bends. None without a known peak.
        """
        if self.roof.peak_tflops is None:
            return None
        return self.roof.reading_ms(self.weight_bytes) / self.roof.computing_ms(linear_flops(self.shape))

    def crossover(self, users: int = 1) -> float:
        """The position from which a step reads more cache than weights, for so many texts at the same time.

        n = weight bytes ÷ (users × bytes a token); infinite where windows keep the cache smaller for ever.
        """
        position = self.weight_bytes / (users * self.layout.token_bytes)
        is_forgotten = self.layout.windowed_layers and position > self.layout.window
        return self._beyond_the_window(users) if is_forgotten else position

    def _beyond_the_window(self, users: int) -> float:
        layout = self.layout
        whole = users * layout.numbers * layout.bytes_per_number * (layout.layers - layout.windowed_layers)
        full = users * layout.numbers * layout.bytes_per_number * layout.windowed_layers * layout.window
        return (self.weight_bytes - full) / whole if whole else float("inf")


def under(profile: HardwareProfile, shape: Shape, dtype: str) -> Roofline | None:
    """The roofline of a model on a profile's machine; None where bandwidth or arithmetic is not known.

    A mixture of experts with latent attention reads and computes by other formulas than these.
    """
    if profile.bandwidth_gb_s is None or shape.latent or dtype not in BYTES:
        return None
    peak, overhead = profile.peak_tflops.get(dtype), profile.step_overhead_ms
    roof = Roof(
        profile.bandwidth_gb_s.value,
        peak.value if peak else None,
        overhead.value if overhead else 0.0,
    )
    return Roofline(shape, dtype, roof)


def gpt2_flops(layers: int, width: int, vocab: int, *, new: int, keys: float) -> float:
    """What GPT-2 computes for `new` positions that see `keys`; its matrices have 12·L·d² + V·d numbers."""
    return new * (2 * (12 * layers * width**2 + vocab * width) + 4 * layers * width * keys)


def linear_parameters(shape: Shape) -> int:
    """N_p: the numbers in the matrices that every position goes through, the output's included."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    attention = 2 * shape.width * queries + 2 * shape.width * keys
    mlp = (3 if shape.gated else 2) * shape.width * shape.mlp_width
    return shape.layers * (attention + mlp) + shape.vocab * shape.width


def linear_flops(shape: Shape) -> int:
    """2·N_p: a multiplication and an addition for each number, for one position."""
    return 2 * linear_parameters(shape)


def attention_flops(shape: Shape, keys: int) -> int:
    """4·L·d·n: for one query, scores against n keys and the sum of n values, at 2·d operations each."""
    return 4 * shape.layers * shape.heads * shape.head_dim * keys
