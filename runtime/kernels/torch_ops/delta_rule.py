"""Gated delta rule ("Gated Delta Networks", arXiv 2412.06464): one step, and a whole run of tokens in chunks.

Per value head, state M [dk, dv], decay g <= 0, write strength beta:
    M <- exp(g) M;   d = beta (v - M^T k);   M <- M + k d^T;   o = M^T q
Value head r reads key head r // (Hv // Hk). q and k come L2-normalised, q scaled by dk**-0.5.
Computed in the dtype of the tokens, fp32 or fp64; the fp32 state is rounded once, at the end.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from runtime.kernels.torch_ops.norms import gated_rms_norm

CHUNK_TOKENS = 64
"""Tokens solved together by the chunked form."""


def l2_normalise(x: Tensor, scale: float = 1.0) -> Tensor:
    """x * scale / sqrt(sum(x**2) + 1e-6) over the last dimension."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True).add_(1e-6)).mul_(scale)


def delta_step(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor) -> Tensor:
    """One token. q, k [Hk, dk]; v [Hv, dv]; g, beta [Hv]; state fp32 [Hv, dk, dv], updated in place. Returns [Hv, dv].

    Reads k and q against the old state in one product: o = exp(g) M_old^T q + (q . k) d.
    """
    num_value_heads, stored, state = v.shape[0], state, state.to(v.dtype)
    group = num_value_heads // k.shape[0]
    pair = torch.stack((k, q), dim=1).repeat_interleave(group, dim=0)
    decay = g.exp().view(num_value_heads, 1, 1)
    predicted, read = torch.bmm(pair, state).mul_(decay).unbind(1)
    delta = (v - predicted).mul_(beta.unsqueeze(1))
    keys, queries = pair.unbind(1)
    stored.copy_(state.mul_(decay).addcmul_(keys.unsqueeze(2), delta.unsqueeze(1)))
    return read + (keys * queries).sum(-1, keepdim=True) * delta


def delta_chunks(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor) -> Tensor:
    """T tokens in chunks. q, k [T, Hk, dk]; v [T, Hv, dv]; g, beta [T, Hv]; state fp32 [Hv, dk, dv], updated in place.

    Returns [T, Hv, dv]. Equal to T steps: within a chunk the writes d solve a unit lower triangular system by forward
    substitution, which is the recurrence itself (nothing is inverted, so equal keys do no harm). Every exponent is a
    decay between two tokens and never positive; sums of g are taken in fp64, so that weak decays next to strong ones
    keep their digits.
    """
    group, stored, state = v.shape[1] // k.shape[1], state, state.to(v.dtype)
    q, k = q.transpose(0, 1), k.transpose(0, 1)
    v, g, beta = v.transpose(0, 1), g.transpose(0, 1).double(), beta.transpose(0, 1).unsqueeze(-1)
    outputs = torch.empty_like(v)
    for begin in range(0, v.shape[1], CHUNK_TOKENS):
        chunk = slice(begin, begin + CHUNK_TOKENS)
        _one_chunk(q[:, chunk], k[:, chunk], v[:, chunk], g[:, chunk], beta[:, chunk], state, group, outputs[:, chunk])
    stored.copy_(state)
    return outputs.transpose(0, 1)


def _one_chunk(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, group: int, output: Tensor
) -> None:
    """One chunk of C tokens, heads first; g fp64 [Hv, C], beta [Hv, C, 1]; writes `output` [Hv, C, dv] and `state`."""
    total = g.cumsum(-1)
    from_start = total.exp().to(v.dtype).unsqueeze(-1)
    # decay[i, j] = exp(g_{j+1} + ... + g_i) for j <= i, else 0; masked before exp, where it would be large.
    difference = total.unsqueeze(-1) - total.unsqueeze(-2)
    is_future = torch.ones(difference.shape[-2:], dtype=torch.bool, device=g.device).triu_(1)
    decay = difference.masked_fill_(is_future, float("-inf")).exp_().to(v.dtype)
    keys, queries = k.repeat_interleave(group, 0), q.repeat_interleave(group, 0)
    similarity = torch.bmm(k, k.transpose(1, 2)).repeat_interleave(group, 0)
    attention = torch.bmm(q, k.transpose(1, 2)).repeat_interleave(group, 0).mul_(decay)
    # (I + A) d = beta (v - decayed prediction of the old state), A_ij = beta_i decay_ij k_i.k_j for j < i
    system = similarity.mul_(decay).mul_(beta)
    wanted = torch.baddbmm(v, keys * from_start, state, alpha=-1.0).mul_(beta)
    delta = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
    torch.baddbmm(torch.bmm(queries * from_start, state), attention, delta, out=output)
    to_end = (total[:, -1:] - total).exp().to(v.dtype).unsqueeze(-1)
    state.mul_(from_start[:, -1:]).baddbmm_((keys * to_end).transpose(1, 2), delta)


def delta_rows(
    mixed: Tensor, log_decay: Tensor, beta: Tensor, pool: Tensor, state_rows: Tensor, num_key_heads: int
) -> Tensor:
    """`delta_step` of one token in each of R sequences, from the convolution's output on.

    mixed fp32 [R, 2*Hk*dk + Hv*dv] holds q, k and v, q and k not normalised yet; log_decay, beta [R, Hv]; pool fp32
    [rows, Hv, dk, dv], of which `state_rows` int64 [R] (distinct) move on. Returns [R, Hv, dv]. A row's bits don't
    depend on the others.
    """
    num_rows, (num_value_heads, key_dim, value_dim) = mixed.shape[0], pool.shape[1:]
    qk_width = 2 * num_key_heads * key_dim
    qk = l2_normalise(mixed[:, :qk_width].reshape(num_rows, 2 * num_key_heads, key_dim))
    q, k = qk.split(num_key_heads, dim=1)
    q = q * key_dim**-0.5
    v = mixed[:, qk_width:].reshape(num_rows, num_value_heads, value_dim)
    states = pool.index_select(0, state_rows)
    read = [delta_step(q[i], k[i], v[i], log_decay[i], beta[i], states[i]) for i in range(num_rows)]
    pool.index_copy_(0, state_rows, states)
    return torch.stack(read)


@dataclass(frozen=True)
class DeltaNetConstants:
    """What a delta net's gates and norm are made with: decay_rate is -exp(A_log), it and dt_bias [Hv]; norm [dv]."""

    decay_rate: Tensor
    dt_bias: Tensor
    norm: Tensor
    eps: float
    is_sigmoid: bool
    num_key_heads: int


def decay_and_strength(decay: Tensor, write: Tensor, constants: DeltaNetConstants) -> tuple[Tensor, Tensor]:
    """Log decay -exp(A_log) softplus(decay + dt_bias) and write strength sigmoid(write), of gates [..., Hv]."""
    log_decay = functional.softplus(decay + constants.dt_bias).mul_(constants.decay_rate)
    return log_decay, torch.sigmoid(write)


def delta_net_rows(
    mixed: Tensor, gates: tuple[Tensor, Tensor, Tensor], constants: DeltaNetConstants, pool: Tensor, state_rows: Tensor
) -> Tensor:
    """All of a delta net between its convolution and its output projection, of one token in each of R sequences.

    mixed and pool as for `delta_rows`; `gates` are the raw output gate [R, Hv*dv], write gate and decay gate [R, Hv].
    Returns [R, Hv*dv]: the read-outs, normed and gated.
    """
    output_gate, write, decay = gates
    log_decay, strength = decay_and_strength(decay, write, constants)
    read = delta_rows(mixed, log_decay, strength, pool, state_rows, constants.num_key_heads)
    read = read.reshape(-1, read.shape[-1])
    gate = output_gate.reshape(read.shape)
    gated = gated_rms_norm(read, gate, constants.norm, constants.eps, constants.is_sigmoid)
    return gated.view(mixed.shape[0], -1)
