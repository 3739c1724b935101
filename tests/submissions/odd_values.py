"""A stage file for every stage, whose every function and model answers with one odd value after another."""

import os

import torch
from torch import nn

import gpt2


class Thing:
    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return odd()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Thing()


class Shapeless:
    shape = [torch.ones(2), None]


def raises(error):
    raise error


VALUES = (
    lambda: None, lambda: True, lambda: -1, lambda: 2**500, lambda: 10**600, lambda: -0.0, lambda: float("nan"),
    lambda: float("inf"), lambda: "", lambda: "x" * 10**6, lambda: "\ud800", lambda: [], lambda: (), lambda: {},
    lambda: {1: {2.5: None, True: [1]}}, lambda: [None, None], lambda: (float("nan"), [float("inf")]),
    lambda: torch.zeros(()), lambda: torch.zeros(0), lambda: torch.zeros(0, 3, 0), lambda: torch.ones(2, 3),
    lambda: torch.ones(2, 3, dtype=torch.bool), lambda: torch.ones(2, dtype=torch.complex64),
    lambda: torch.ones(2).to_sparse(), lambda: torch.ones(2, device="meta"), lambda: torch.full((2, 3, 4, 5), torch.nan),
    lambda: torch.ones(2, requires_grad=True) * 2, lambda: torch.empty(0, 1 << 39, 7), lambda: nn.Parameter(torch.ones(1)),
    lambda: (torch.ones(2, 7, 29), [(torch.ones(1), torch.ones(()))] * 2), lambda: (torch.ones(1), None),
    lambda: [(torch.ones(2, 3, 4, 5), Thing())] * 2, lambda: ((Thing(), Thing()), Thing()), lambda: Thing(),
    lambda: Thing, lambda: [[[[[[1]]]]]] * 3, lambda: range(3), lambda: b"bytes", lambda: 1j, lambda: {(1, 2): 3},
    lambda: [torch.ones(1)] * 1000, lambda: tuple(range(1000)), lambda: raises(StopIteration(1)),
    lambda: raises(GeneratorExit()), lambda: raises(AssertionError("")), lambda: raises(type("Skipped", (Exception,), {})()),
    lambda: raises(ExceptionGroup("x" * 10**5, [ValueError(), KeyError((1, [2]))])), lambda: raises(NotImplementedError),
    lambda: raises(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "\x1b[2J")), lambda: gpt2.Config(n_layer=1, n_head=1, n_embd=4),
)
turn = 0


def odd(*args, **kwargs):
    """One value after another; every check begins with another, since its process has another number."""
    global turn
    turn += 1
    return VALUES[(7 * os.getpid() + turn) % len(VALUES)]()


class Odd:
    def forward(self, *args, **kwargs):
        return odd()


class Attention(Odd, gpt2.Attention):
    pass


class Block(Odd, gpt2.Block):
    pass


class GPT(Odd, gpt2.GPT):
    def named_parameters(self, *args, **kwargs):
        return [("wte.weight", Shapeless())] if os.getpid() % 3 == 0 else super().named_parameters(*args, **kwargs)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return odd
