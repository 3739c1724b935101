def cache_bytes(past):
    return 1.0 * sum(t.numel() * t.element_size() for pair in past for t in pair)


def kv_bytes_per_token(n_layer, n_kv_head, head_dim, bytes_per_number):
    return 2.0 * n_layer * n_kv_head * head_dim * bytes_per_number
