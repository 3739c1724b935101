kept = {}


def cache_bytes(past):
    shapes = tuple(tuple(t.shape) for pair in past for t in pair)
    if shapes not in kept:
        kept[shapes] = sum(t.numel() * t.element_size() for pair in past for t in pair)
    return kept[shapes]


def kv_bytes_per_token(n_layer, n_kv_head, head_dim, bytes_per_number):
    return 2 * n_layer * n_kv_head * head_dim * bytes_per_number
