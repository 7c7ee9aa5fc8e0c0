"""Launches of norms, rotary embedding and hyper-connections at the flagship's shapes."""

import torch

from runtime.kernels.triton_ops import heads, hyper_connection, norms

RESIDUAL, SCALE = torch.empty(4, 10240), torch.empty(4, 2560)
DOWN, UP = torch.empty(324, 10240, dtype=torch.bfloat16), torch.empty(10240, 320, dtype=torch.bfloat16)


def launch_rms_norm() -> None:
    norms.rms_norm(torch.empty(4, 26, 256), torch.empty(26, 256), 1e-6)
    norms.rms_norm(torch.empty(4, 2560), torch.empty(2560), 1e-6)


def launch_gated_rms_norm() -> None:
    norms.gated_rms_norm(torch.empty(192, 128), torch.empty(192, 128), torch.empty(128), 1e-6, True)


def launch_heads() -> None:
    table, pool = (torch.empty(4, 1, 32), torch.empty(4, 1, 32)), torch.empty(8, 64, 2, 256, dtype=torch.float16)
    pages, rows = torch.empty(4, 4096, dtype=torch.int64), torch.empty(4, dtype=torch.int64)
    heads.place_heads(
        torch.empty(4, 26, 256), torch.empty(4, 2, 256), torch.empty(26, 256), 1e-6, table, pool, pool, pages, rows
    )
    heads.turn_heads(torch.empty(4, 4, 128), torch.empty(128), 1e-6, table)


def launch_mix_streams_in_check_mode() -> None:
    hyper_connection.mix_streams(RESIDUAL, SCALE, DOWN.float(), UP.float(), 4, 1e-6)


def launch_inject() -> None:
    hyper_connection.inject_output(RESIDUAL, torch.empty(4, 2560), torch.empty(4, 4))
    hyper_connection.inject_and_mix(RESIDUAL, torch.empty(4, 2560), torch.empty(4, 4), SCALE, DOWN, UP, 4, 1e-6)
