"""Launches of dense products at the flagship's shapes: delta net in and out, shared expert, hyper-connection, head."""

import torch

from runtime.kernels.torch_ops.linear import Convolved
from runtime.kernels.triton_ops import dense


def launch_wide() -> None:
    dense.linear(torch.empty(1, 2560), torch.empty(16480, 2560, dtype=torch.bfloat16))


def launch_split() -> None:
    dense.linear(torch.empty(4, 6144), torch.empty(2560, 6144, dtype=torch.bfloat16))


def launch_fp8() -> None:
    dense.linear(torch.empty(1, 2560), torch.empty(16480, 2560, dtype=torch.uint8), torch.empty(16480))


def launch_fp8_and_exact() -> None:
    gates = torch.empty(96, 2560, dtype=torch.bfloat16)
    dense.linear(torch.empty(1, 2560), torch.empty(16384, 2560, dtype=torch.uint8), torch.empty(16384), gates)


def launch_convolved() -> None:
    convolved = Convolved(torch.empty(4, 3, 10240), torch.empty(4, dtype=torch.int64), torch.empty(4, 10240))
    dense.linear_conv(torch.empty(4, 2560), convolved, torch.empty(16480, 2560, dtype=torch.bfloat16))
    gates = torch.empty(96, 2560, dtype=torch.bfloat16)
    quantised = torch.empty(16384, 2560, dtype=torch.uint8), torch.empty(16384)
    dense.linear_conv(torch.empty(4, 2560), convolved, *quantised, gates)


def launch_check_mode() -> None:
    dense.linear(torch.empty(4, 2560), torch.empty(1281, 2560))


def launch_silu_linear() -> None:
    dense.silu_linear(torch.empty(2, 1281), True, torch.empty(2560, 640, dtype=torch.bfloat16))
    dense.silu_linear(torch.empty(2, 1281), True, torch.empty(2560, 640, dtype=torch.uint8), torch.empty(2560))
