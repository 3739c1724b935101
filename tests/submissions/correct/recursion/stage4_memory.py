import torch


def cache_bytes(past):
    if isinstance(past, torch.Tensor):
        return past.numel() * past.dtype.itemsize
    return sum(map(cache_bytes, past))


def kv_bytes_per_token(n_layer, n_kv_head, head_dim, bytes_per_number):
    if n_layer == 0:
        return 0
    one_layer = 2 * n_kv_head * head_dim * bytes_per_number
    return one_layer + kv_bytes_per_token(n_layer - 1, n_kv_head, head_dim, bytes_per_number)
