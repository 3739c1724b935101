def cache_bytes(past):
    total = 0
    for k, v in past:
        for t in (k, v):
            total += t.numel() * t.element_size()
    return total


def kv_bytes_per_token(n_layer, n_kv_head, head_dim, bytes_per_number):
    numbers_per_head = head_dim
    numbers_per_layer = 2 * n_kv_head * numbers_per_head  # a key and a value
    return n_layer * numbers_per_layer * bytes_per_number
