"""One thread for every test: the tensors are tiny, and a second thread would spin beside whatever else runs."""

import torch

torch.set_num_threads(1)
