"""Gated delta net mixer: linear attention with a fixed-size state per sequence."""

from typing import Any

import torch
from torch import Tensor

from runtime.cache.state_pool import StatePool
from runtime.families.names import NameMap
from runtime.kernels.ops import Ops
from runtime.kernels.torch_ops.delta_rule import DeltaNetConstants, decay_and_strength
from runtime.kernels.torch_ops.linear import Convolved
from runtime.layers.dense_weights import DenseWeights
from runtime.layers.step import DecodeRows, Segment, StepInputs
from runtime.spec import DeltaNetSpec, ModelSpec


class DeltaNet:
    """One layer's weights; `index` is its row among the model's delta net layers in the state pool."""

    def __init__(self, spec: ModelSpec, weights: DenseWeights, names: NameMap, layer: int, ops: Ops) -> None:
        assert spec.delta_net is not None
        self._ops = ops
        self._net: DeltaNetSpec = spec.delta_net
        self._dtype = weights.compute_dtype
        dtype = weights.residual_dtype
        self.index = spec.delta_net_layers.index(layer)

        def name(part: str) -> str:
            return names.of_layer(layer, f"linear_attn.{part}")

        if self._net.is_grouped:
            qkvz, ba = (weights.read(name(f"{part}.weight"), dtype) for part in ("in_proj_qkvz", "in_proj_ba"))
            mixed, gates = _ungrouped(self._net, qkvz, ba)
        else:
            mixed, gates = (
                [weights.read(name(f"in_proj_{part}.weight"), dtype) for part in parts]
                for parts in (("qkv", "z"), ("b", "a"))
            )
        self._in_proj = weights.projection(mixed, gates)
        del mixed, gates
        self._conv = weights.conv(name("conv1d.weight"))
        self._constants = DeltaNetConstants(
            decay_rate=weights.vector(name("A_log"), torch.promote_types(dtype, torch.float32)).exp_().neg_(),
            dt_bias=weights.vector(name("dt_bias")),
            norm=weights.vector(name("norm.weight")),
            eps=spec.rms_norm_eps,
            is_sigmoid=self._net.gate_activation == "sigmoid",
            num_key_heads=self._net.num_key_heads,
        )
        self._out_proj = weights.projection([weights.read(name("out_proj.weight"))])

    def forward(self, hidden: Tensor, step: StepInputs, states: StatePool) -> Tensor:
        """Mixer output [N, H] for hidden [N, H]; moves each segment's recurrent and convolution state on.

        All but the output projection is computed in the dtype of `hidden`, the residual's.
        """
        mixed, gate, write, decay = self._split(self._ops.linear(hidden, *self._in_proj))
        log_decay, beta = decay_and_strength(decay, write, self._constants)
        rows = [
            self._run_segment(mixed[span], log_decay[span], beta[span], states, segment) for segment, span in step.spans
        ]
        read = (rows[0] if len(rows) == 1 else torch.cat(rows)).reshape(-1, self._net.value_dim)
        constants = self._constants
        gated = self._ops.gated_rms_norm(
            read, gate.reshape(read.shape), constants.norm, constants.eps, constants.is_sigmoid
        )
        return self._output(gated.view(hidden.shape[0], -1))

    def decode(self, hidden: Tensor, rows: DecodeRows, states: StatePool) -> Tensor:
        """The same of one token in each of R sequences."""
        convolved = Convolved(states.conv[self.index], rows.state_rows, self._conv)
        mixed, *gates = self._split(self._ops.linear_conv(hidden, convolved, *self._in_proj))
        recurrent = states.recurrent[self.index]
        return self._output(self._ops.delta_net_rows(mixed, tuple(gates), self._constants, recurrent, rows.state_rows))

    def _split(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What the convolution reads [N, C], the raw output gate [N, Hv*dv], write gate and decay gate [N, Hv]."""
        net = self._net
        widths = (net.conv_channels, net.num_value_heads * net.value_dim, net.num_value_heads, net.num_value_heads)
        mixed, gate, write, decay = projected.split(widths, dim=-1)
        return mixed, gate, write, decay

    def _output(self, gated: Tensor) -> Tensor:
        """Mixer output [N, H] of normed and gated read-outs [N, Hv*dv]."""
        output: Tensor = self._ops.linear(gated.to(self._dtype), *self._out_proj)
        return output

    def _run_segment(self, mixed: Tensor, log_decay: Tensor, beta: Tensor, states: StatePool, segment: Segment) -> Any:
        """Read-outs [T, Hv, dv] of one segment's tokens."""
        net, ops = self._net, self._ops
        num_tokens, row = mixed.shape[0], segment.state_row
        state = states.recurrent[self.index, row]
        mixed = ops.causal_conv(mixed, states.conv[self.index, row], self._conv, 1)
        num_qk_heads, qk_width = 2 * net.num_key_heads, 2 * net.num_key_heads * net.key_dim
        qk = ops.l2_normalise(mixed[:, :qk_width].reshape(num_tokens, num_qk_heads, net.key_dim))
        q, k = qk.split(net.num_key_heads, dim=1)
        q = q * net.key_dim**-0.5
        v = mixed[:, qk_width:].reshape(num_tokens, net.num_value_heads, net.value_dim)
        if num_tokens == 1:
            read = ops.delta_step(q[0], k[0], v[0], log_decay[0], beta[0], state).unsqueeze(0)
        else:
            read = ops.delta_chunks(q, k, v, log_decay, beta, state)
        if segment.save_row is not None:
            states.recurrent[self.index, segment.save_row].copy_(state)
            states.conv[self.index, segment.save_row].copy_(states.conv[self.index, row])
        return read


def _ungrouped(net: DeltaNetSpec, qkvz: Tensor, ba: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """[q of all heads, k, v, z] and [b, a], of matrices whose rows come as one such group per key head.

    transformers' Qwen3NextGatedDeltaNet.fix_query_key_value_ordering, done once on the weights.
    """
    group = net.num_value_heads // net.num_key_heads
    widths = (net.key_dim, net.key_dim, group * net.value_dim, group * net.value_dim)
    parts = qkvz.unflatten(0, (net.num_key_heads, -1)).split(widths, dim=1)
    gates = ba.unflatten(0, (net.num_key_heads, -1)).split(group, dim=1)
    return [part.flatten(0, 1) for part in parts], [part.flatten(0, 1) for part in gates]
