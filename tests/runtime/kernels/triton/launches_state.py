"""Launches of delta net, convolution and n-gram kernels at the flagship's shapes."""

import torch

from runtime.kernels.torch_ops.delta_rule import DeltaNetConstants
from runtime.kernels.triton_ops import conv, delta_rule, ngram

ROWS = torch.empty(4, dtype=torch.int64)
STATES = torch.empty(4, 48, 128, 128)


def launch_conv() -> None:
    conv.conv_rows(torch.empty(4, 10240), torch.empty(4, 3, 10240), ROWS, torch.empty(4, 10240), 1)
    conv.conv_rows(torch.empty(4, 10240), torch.empty(4, 9, 10240), ROWS, torch.empty(4, 10240), 3)


def launch_delta() -> None:
    heads = torch.empty(4, 48)
    constants = DeltaNetConstants(heads[0], heads[0], torch.empty(128), 1e-6, True, 16)
    gates = torch.empty(4, 6144), heads, heads
    delta_rule.delta_net_rows(torch.empty(4, 10240), gates, constants, STATES, ROWS)


def launch_ngram() -> None:
    contexts = ngram.context_rows(torch.empty(4, 2, dtype=torch.int64), ROWS, ROWS, 248044)
    heads = torch.empty(16, dtype=torch.int64)
    ngram.ngram_ids(contexts, heads[:3], heads, heads)
    ngram.ngram_gate(torch.empty(4, 4, 2560), torch.empty(4, 4, 2560))
