"""Launches of attention and its indexer at the flagship's shapes, and of plain attention over long contexts."""

import torch

from runtime.kernels.torch_ops.attention_rows import IndexRows
from runtime.kernels.triton_ops import attention, heads, indexer

ROWS = torch.empty(4, dtype=torch.int64)
PAGES = torch.empty(4, 4096, dtype=torch.int64)


def launch_write() -> None:
    pool = torch.empty(8, 64, 2, 256, dtype=torch.bfloat16)
    attention.write_rows(torch.empty(4, 2, 256), pool, PAGES, ROWS)


def launch_heads() -> None:
    table, pool = (torch.empty(4, 1, 32), torch.empty(4, 1, 32)), torch.empty(8, 64, 2, 256, dtype=torch.bfloat16)
    index = IndexRows(
        torch.empty(4, 4, 128), torch.empty(128), torch.empty(4, 128), torch.empty(4, 3, 128), ROWS,
        torch.empty(8, 16, 128, dtype=torch.bfloat16), torch.empty(128), table, 4,
    )  # fmt: skip
    heads.place_indexed_heads(
        torch.empty(4, 26, 256), torch.empty(4, 2, 256), torch.empty(26, 256), 1e-6, table, pool, pool, PAGES, ROWS,
        index,
    )  # fmt: skip


def launch_select() -> None:
    for dtype in (torch.bfloat16, torch.float32):
        keys = torch.empty(8, 16, 128, dtype=dtype)
        # Thousands of blocks, and as few as groups that are all candidates.
        for pages in (PAGES, PAGES[:, :128].contiguous()):
            indexer.select_rows(torch.empty(4, 4, 128), keys, pages, ROWS, 512, 4)


def launch_attend_sparse() -> None:
    for dtype in (torch.bfloat16, torch.float32):
        pool, blocks = torch.empty(8, 64, 2, 256, dtype=dtype), torch.empty(4, 512, dtype=torch.int64)
        attention.attend_rows(torch.empty(4, 24, 256), pool, pool, PAGES, ROWS, 0.0625, blocks, 4)
    gate = torch.empty(4, 6144)
    attention.attend_rows(torch.empty(4, 24, 256), pool, pool, PAGES, ROWS, 0.0625, blocks, 4, gate)


def launch_attend_dense() -> None:
    pool = torch.empty(8, 64, 4, 128, dtype=torch.float16)
    attention.attend_rows(torch.empty(4, 32, 128), pool, pool, PAGES, ROWS, 0.1)
