import threading

import torch


def generate_cache(model, idx, n_new):
    failed = []

    def work():
        try:
            model(idx)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raise failed[0]



def first_mismatch(a, b):
    n = min(a.shape[1], b.shape[1])
    differs = (a[:, :n] != b[:, :n]).any(dim=0)
    if differs.any():
        return int(differs.int().argmax())
    return None if a.shape[1] == b.shape[1] else n
