"""Rows of a table of bytes, by number."""

from torch import Tensor


def gather_rows(table: Tensor, ids: Tensor) -> Tensor:
    """uint8 [N, row_bytes] of table uint8 [rows, row_bytes] and ids int64 [N], where the ids are."""
    return table.index_select(0, ids)
