def cache_bytes(past):
    return sum(t.numel() * t.element_size() for pair in past for t in pair)


def kv_bytes_per_token(n_layer, n_kv_head, head_dim, bytes_per_number):
    raise KeyboardInterrupt
    return 2 * n_layer * n_kv_head * head_dim * bytes_per_number
