from itertools import chain
from math import prod


def cache_bytes(past):
    return sum(t.nbytes for t in chain.from_iterable(past))


def kv_bytes_per_token(n_layer, n_kv_head, head_dim, bytes_per_number):
    return prod((2, n_layer, n_kv_head, head_dim, bytes_per_number))
