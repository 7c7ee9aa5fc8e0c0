"""The ops table: one name per op, and which implementation runs it. `torch_ops` is the specification of every op."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from runtime.kernels.torch_ops import (
    attention,
    attention_rows,
    conv,
    delta_rule,
    hyper_connection,
    linear,
    ngram,
    norms,
    rotary,
    router,
)

Op = Callable[..., Any]
"""Signatures and shapes are those of the function of the same name in `torch_ops`."""


@dataclass(frozen=True)
class Ops:
    """Every op of the decoder, picked for one device."""

    linear: Op
    rms_norm: Op
    gated_rms_norm: Op
    mix_streams: Op
    inject_output: Op
    causal_conv: Op
    conv_rows: Op
    l2_normalise: Op
    delta_step: Op
    delta_chunks: Op
    delta_rows: Op
    rotary_table: Op
    rotate: Op
    attend: Op
    attend_causal: Op
    block_scores: Op
    select_blocks: Op
    selected_tokens: Op
    write_rows: Op
    write_index_rows: Op
    select_rows: Op
    attend_rows: Op
    ngram_contexts: Op
    context_rows: Op
    ngram_ids: Op
    ngram_gate: Op
    route: Op
    combine_routes: Op


_TORCH_OPS = Ops(
    linear=linear.linear,
    rms_norm=norms.rms_norm,
    gated_rms_norm=norms.gated_rms_norm,
    mix_streams=hyper_connection.mix_streams,
    inject_output=hyper_connection.inject_output,
    causal_conv=conv.causal_conv,
    conv_rows=conv.conv_rows,
    l2_normalise=delta_rule.l2_normalise,
    delta_step=delta_rule.delta_step,
    delta_chunks=delta_rule.delta_chunks,
    delta_rows=delta_rule.delta_rows,
    rotary_table=rotary.rotary_table,
    rotate=rotary.rotate,
    attend=attention.attend,
    attend_causal=attention.attend_causal,
    block_scores=attention.block_scores,
    select_blocks=attention.select_blocks,
    selected_tokens=attention.selected_tokens,
    write_rows=attention_rows.write_rows,
    write_index_rows=attention_rows.write_index_rows,
    select_rows=attention_rows.select_rows,
    attend_rows=attention_rows.attend_rows,
    ngram_contexts=ngram.ngram_contexts,
    context_rows=ngram.context_rows,
    ngram_ids=ngram.ngram_ids,
    ngram_gate=ngram.ngram_gate,
    route=router.route,
    combine_routes=router.combine_routes,
)


@lru_cache(maxsize=4)
def select_ops(device: torch.device | str) -> Ops:
    """The ops of a device. Torch's own run on all of them."""
    torch.device(device)
    return _TORCH_OPS
