import torch


def cache_bytes(past):
    sizes = [0]
    for pair in past:
        for tensor in pair:
            size = tensor.element_size()
            for n in tensor.size():
                size *= n
            sizes.append(size)
    return sum(sizes)


def kv_bytes_per_token(n_layer, n_kv_head, head_dim, bytes_per_number):
    k = torch.empty(1, n_kv_head, 1, head_dim, dtype=torch.uint8, device="meta")
    one = cache_bytes([(k, k)] * n_layer)
    return one * bytes_per_number
