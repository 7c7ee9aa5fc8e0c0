"""The ops table: one name per op, and which implementation runs it. `torch_ops` is the specification of every op."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from runtime.errors import EngineError
from runtime.kernels.torch_ops import (
    attention,
    attention_rows,
    conv,
    delta_rule,
    experts,
    gather,
    hyper_connection,
    linear,
    ngram,
    norms,
    rotary,
    router,
    sampler,
    slots,
)

Op = Callable[..., Any]
"""Signatures and shapes are those of the function of the same name in `torch_ops`."""


@dataclass(frozen=True)
class Ops:
    """Every op of the decoder, picked for one device."""

    linear: Op
    linear_conv: Op
    silu_linear: Op
    rms_norm: Op
    gated_rms_norm: Op
    mix_streams: Op
    inject_output: Op
    inject_and_mix: Op
    causal_conv: Op
    conv_rows: Op
    l2_normalise: Op
    delta_step: Op
    delta_chunks: Op
    delta_net_rows: Op
    rotary_table: Op
    attend: Op
    attend_causal: Op
    block_scores: Op
    select_blocks: Op
    selected_tokens: Op
    write_rows: Op
    turn_heads: Op
    place_heads: Op
    place_indexed_heads: Op
    select_rows: Op
    attend_rows: Op
    ngram_contexts: Op
    context_rows: Op
    ngram_ids: Op
    ngram_gate: Op
    gather_rows: Op
    route: Op
    combine_routes: Op
    begin_step: Op
    ensure: Op
    copy_missed: Op
    expert_rows: Op
    expert_rows_by_arrival: Op
    sample_rows: Op


_TORCH_OPS = Ops(
    linear=linear.linear,
    linear_conv=linear.linear_conv,
    silu_linear=linear.silu_linear,
    rms_norm=norms.rms_norm,
    gated_rms_norm=norms.gated_rms_norm,
    mix_streams=hyper_connection.mix_streams,
    inject_output=hyper_connection.inject_output,
    inject_and_mix=hyper_connection.inject_and_mix,
    causal_conv=conv.causal_conv,
    conv_rows=conv.conv_rows,
    l2_normalise=delta_rule.l2_normalise,
    delta_step=delta_rule.delta_step,
    delta_chunks=delta_rule.delta_chunks,
    delta_net_rows=delta_rule.delta_net_rows,
    rotary_table=rotary.rotary_table,
    attend=attention.attend,
    attend_causal=attention.attend_causal,
    block_scores=attention.block_scores,
    select_blocks=attention.select_blocks,
    selected_tokens=attention.selected_tokens,
    write_rows=attention_rows.write_rows,
    turn_heads=attention_rows.turn_heads,
    place_heads=attention_rows.place_heads,
    place_indexed_heads=attention_rows.place_indexed_heads,
    select_rows=attention_rows.select_rows,
    attend_rows=attention_rows.attend_rows,
    ngram_contexts=ngram.ngram_contexts,
    context_rows=ngram.context_rows,
    ngram_ids=ngram.ngram_ids,
    ngram_gate=ngram.ngram_gate,
    gather_rows=gather.gather_rows,
    route=router.route,
    combine_routes=router.combine_routes,
    begin_step=slots.begin_step,
    ensure=slots.ensure,
    copy_missed=slots.copy_missed,
    expert_rows=experts.expert_rows,
    expert_rows_by_arrival=experts.expert_rows_by_arrival,
    sample_rows=sampler.sample_rows,
)


_LINEAR_WIDTH = 16
"""A product in Triton takes widths that are multiples of it."""
_logger = logging.getLogger("hotslot.engine")


@lru_cache(maxsize=4)
def select_ops(device: torch.device | str) -> Ops:
    """The ops of a device. Torch's own run on all of them; a GPU has kernels for most of what a decode step does.

    Raises EngineError where a GPU is asked for and Triton can't be loaded.
    """
    return triton_ops() if torch.device(device).type == "cuda" else _TORCH_OPS


@lru_cache(maxsize=1)
def triton_ops() -> Ops:
    """The kernels, and torch's ops for the rest: long chunks, and shapes that a kernel does not take."""
    try:
        # Triton is a part of torch's CUDA builds and of no other; a CPU must not wait for its import either.
        from runtime.kernels.triton_ops import (
            attention,
            conv,
            copying,
            delta_rule,
            dense,
            heads,
            hyper_connection,
            indexer,
            ngram,
            norms,
            router,
        )
        from runtime.kernels.triton_ops import experts as triton_experts
        from runtime.kernels.triton_ops import gather as triton_gather
        from runtime.kernels.triton_ops import sampler as triton_sampler
        from runtime.kernels.triton_ops import slots as triton_slots
    except ImportError as error:
        raise EngineError(
            f"Triton can't be loaded ({error}); install the triton that belongs to this torch, or set --device cpu."
        ) from error
    return replace(
        _TORCH_OPS,
        linear=_for_few_rows(dense.linear, linear.linear),
        linear_conv=_for_few_rows(dense.linear_conv, linear.linear_conv),
        silu_linear=_for_few_rows(dense.silu_linear, linear.silu_linear),
        rms_norm=norms.rms_norm,
        gated_rms_norm=norms.gated_rms_norm,
        mix_streams=_for_few_rows(hyper_connection.mix_streams, _TORCH_OPS.mix_streams),
        inject_output=hyper_connection.inject_output,
        inject_and_mix=_for_few_rows(hyper_connection.inject_and_mix, _TORCH_OPS.inject_and_mix),
        conv_rows=conv.conv_rows,
        delta_net_rows=delta_rule.delta_net_rows,
        write_rows=attention.write_rows,
        turn_heads=heads.turn_heads,
        place_heads=heads.place_heads,
        place_indexed_heads=heads.place_indexed_heads,
        select_rows=indexer.select_rows,
        attend_rows=attention.attend_rows,
        context_rows=ngram.context_rows,
        ngram_ids=ngram.ngram_ids,
        ngram_gate=ngram.ngram_gate,
        gather_rows=triton_gather.gather_rows,
        route=router.route,
        combine_routes=router.combine_routes,
        begin_step=triton_slots.begin_step,
        ensure=triton_slots.ensure,
        copy_missed=copying.copy_missed,
        expert_rows=triton_experts.expert_rows,
        expert_rows_by_arrival=triton_experts.expert_rows_by_arrival,
        sample_rows=triton_sampler.sample_rows,
    )


def _for_few_rows(kernel: Op, general: Op) -> Op:
    """`kernel` for the rows of a decode step, `general` for more, and for matrices of a width that it does not take."""

    def op(x: Tensor, *arguments: Any, **options: Any) -> Any:
        if not 0 < x.shape[0] <= linear.MOST_ROWS:
            return general(x, *arguments, **options)
        tensors = [argument for argument in arguments if isinstance(argument, Tensor) and argument.dim() == 2]
        # What has no more rows than a step is no weight.
        widths = {tensor.shape[1] for tensor in tensors if tensor.shape[0] > linear.MOST_ROWS}
        if any(width % _LINEAR_WIDTH for width in widths):
            _say_once(f"{kernel.__name__} of widths {sorted(widths)} runs as torch's op: no multiples of 16")
            return general(x, *arguments, **options)
        return kernel(x, *arguments, **options)

    return op


@lru_cache(maxsize=64)
def _say_once(message: str) -> None:
    _logger.warning("%s", message)
