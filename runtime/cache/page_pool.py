"""The memory of KV pages: keys, values and index keys of 64 tokens per page, for every attention layer.

Owns memory, not pages: who uses which page is the allocator's business.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from runtime.spec import PAGE_TOKENS, ModelSpec


def index_slots_per_page(block_tokens: int) -> int:
    """Most blocks whose last token can lie in one page."""
    return -(-PAGE_TOKENS // block_tokens)


class PagePool:
    """Pages 0 … num_pages-1.

    keys, values [layers, num_pages, 64, kv_heads, head_dim]; index_keys [layers, num_pages, slots, index_dim], or None
    for models without an indexer. Layers are numbered as in `spec.attention_layers`. The `_flat` views join page and
    token.

    With `host_memory`, which gives uint8 [bytes] that the device reads, keys and values lie there: then they are read
    and written by ops on the device alone, in the order of its steps.
    """

    def __init__(
        self,
        spec: ModelSpec,
        num_pages: int,
        device: torch.device | str,
        dtype: torch.dtype,
        host_memory: Callable[[int], Tensor] | None = None,
    ) -> None:
        num_layers, attention, indexer = len(spec.attention_layers), spec.attention, spec.indexer
        shape = (num_layers, num_pages, PAGE_TOKENS, attention.num_kv_heads, attention.head_dim)
        self.num_pages = num_pages
        self.is_kv_on_host = host_memory is not None
        if host_memory is None:
            self.keys = torch.zeros(shape, device=device, dtype=dtype)
            self.values = torch.zeros(shape, device=device, dtype=dtype)
        else:
            num_bytes = math.prod(shape) * dtype.itemsize
            self.keys, self.values = (host_memory(num_bytes).zero_().view(dtype).view(shape) for _ in range(2))
        self.index_keys: Tensor | None = None
        self.index_keys_flat: Tensor | None = None
        if indexer is not None:
            slots = index_slots_per_page(indexer.block_tokens)
            self.index_keys = torch.zeros((num_layers, num_pages, slots, indexer.head_dim), device=device, dtype=dtype)
            self.index_keys_flat = self.index_keys.flatten(1, 2)
        self.keys_flat = self.keys.flatten(1, 2)
        self.values_flat = self.values.flatten(1, 2)

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Keys and values [T, Hkv, D] to flat places `slots` int64 [T], rounded to the pool's dtype."""
        self.keys_flat[layer].index_copy_(0, slots, keys.to(self.keys.dtype))
        self.values_flat[layer].index_copy_(0, slots, values.to(self.values.dtype))

    def write_index_keys(self, layer: int, slots: Tensor, keys: Tensor) -> None:
        """Index keys [T, d] to flat places `slots`, rounded to the pool's dtype."""
        assert self.index_keys_flat is not None
        self.index_keys_flat[layer].index_copy_(0, slots, keys.to(self.index_keys_flat.dtype))

    @property
    def num_bytes(self) -> int:
        """Bytes the pool holds."""
        return self.keys.nbytes + self.values.nbytes + (self.index_keys.nbytes if self.index_keys is not None else 0)

    def copy_page(self, src: int, dst: int) -> None:
        """Copy everything a page holds, in all layers."""
        if self.is_kv_on_host and torch.cuda.is_available():
            # The host copies what steps on the device may still write.
            torch.cuda.synchronize()
        for tensor in (self.keys, self.values, self.index_keys):
            if tensor is not None:
                tensor[:, dst].copy_(tensor[:, src])
