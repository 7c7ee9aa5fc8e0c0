"""The memory of per-sequence state that is not paged: one row per live sequence or saved state checkpoint.

A row holds, at one position of a sequence: recurrent states and convolution histories of delta net layers, convolution
histories and last token ids of the n-gram embedding, and the raw index keys of the unfinished block of each attention
layer. Owns memory, not rows.
"""

import torch
from torch import Tensor

from runtime.spec import ModelSpec


class StatePool:
    """Rows 0 … num_rows-1; the first dimension is the layer, numbered as in the spec's layer tuples.

    recurrent fp32 [delta layers, rows, Hv, dk, dv]; conv [delta layers, rows, K-1, channels];
    ngram_conv [n-gram layers, rows, (K-1)*n, S*H]; last_ids int64 [rows, n-1];
    pending_index_keys [attention layers, rows, R-1, index_dim]; convolutions and index keys are fp32.
    """

    def __init__(self, spec: ModelSpec, num_rows: int, device: torch.device | str) -> None:
        self.num_rows = num_rows
        self._break_id = spec.ngram.break_token_id if spec.ngram is not None else 0
        shapes = _row_shapes(spec)

        def zeros(name: str, dtype: torch.dtype = torch.float32) -> Tensor:
            num_layers, *row_shape = shapes[name]
            return torch.zeros((num_layers, num_rows, *row_shape), device=device, dtype=dtype)

        self.recurrent = zeros("recurrent")
        self.conv = zeros("conv")
        self.ngram_conv = zeros("ngram_conv")
        self.pending_index_keys = zeros("pending_index_keys")
        self.last_ids = zeros("last_ids", torch.int64)[0].fill_(self._break_id)

    @property
    def num_bytes(self) -> int:
        """Bytes the pool holds."""
        return sum(tensor.nbytes for tensor in self._layered()) + self.last_ids.nbytes

    def reset(self, row: int) -> None:
        """Make a row the state before a sequence's first token."""
        for tensor in self._layered():
            tensor[:, row].zero_()
        self.last_ids[row].fill_(self._break_id)

    def copy(self, src: int, dst: int) -> None:
        """Copy one row onto another."""
        for tensor in self._layered():
            tensor[:, dst].copy_(tensor[:, src])
        self.last_ids[dst].copy_(self.last_ids[src])

    def snapshot(self, row: int) -> tuple[Tensor, ...]:
        """Everything a row holds, in host memory."""
        return tuple(part.to("cpu", copy=True) for part in (*(t[:, row] for t in self._layered()), self.last_ids[row]))

    def restore(self, row: int, state: tuple[Tensor, ...]) -> None:
        """Make a row what it was."""
        *layered, last_ids = state
        for tensor, values in zip(self._layered(), layered, strict=True):
            tensor[:, row].copy_(values)
        self.last_ids[row].copy_(last_ids)

    def _layered(self) -> tuple[Tensor, ...]:
        return self.recurrent, self.conv, self.ngram_conv, self.pending_index_keys


def _row_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Shape of each part of a row, layers first; absent parts have no layers."""
    net, ngram, indexer = spec.delta_net, spec.ngram, spec.indexer
    shapes: dict[str, tuple[int, ...]] = {
        "recurrent": (0, 1, 1, 1), "conv": (0, 1, 1), "ngram_conv": (0, 1, 1), "last_ids": (1, 0),
        "pending_index_keys": (0, 1, 1),
    }  # fmt: skip
    if net is not None:
        num_layers = len(spec.delta_net_layers)
        shapes["recurrent"] = (num_layers, net.num_value_heads, net.key_dim, net.value_dim)
        shapes["conv"] = (num_layers, net.conv_kernel - 1, net.conv_channels)
    if ngram is not None:
        taps = (ngram.conv_kernel - 1) * ngram.ngram_size
        shapes["ngram_conv"] = (len(ngram.layer_indices), taps, spec.residual_width)
        shapes["last_ids"] = (1, ngram.ngram_size - 1)
    if indexer is not None:
        shapes["pending_index_keys"] = (len(spec.attention_layers), indexer.block_tokens - 1, indexer.head_dim)
    return shapes
