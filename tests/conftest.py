"""One thread for every test: the tensors are tiny, and a second thread would only spin."""

import torch

torch.set_num_threads(1)
