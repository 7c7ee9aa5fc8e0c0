"""Causal depthwise convolution over time with carried history, plain or dilated."""

import torch
from torch import Tensor
from torch.nn import functional


def causal_conv(x: Tensor, history: Tensor, weight: Tensor, dilation: int) -> Tensor:
    """y[i] = silu(sum_j weight[j] * ext[i + j*dilation]) with ext = [history; x]; history moves on in place.

    x [T, C]; history [(K-1)*dilation, C], oldest first, zeros before the sequence; weight [K, C], last tap = current
    token. Returns [T, C]; afterwards history holds the last (K-1)*dilation rows of ext.
    """
    num_tokens, kernel = x.shape[0], weight.shape[0]
    extended = torch.cat((history, x))
    if num_tokens == 1:
        y = (extended[::dilation] * weight).sum(dim=0, keepdim=True)
    else:
        y = extended[:num_tokens] * weight[0]
        for tap in range(1, kernel):
            y.addcmul_(extended[tap * dilation : tap * dilation + num_tokens], weight[tap])
    history.copy_(extended[num_tokens:])
    return functional.silu(y)


def conv_rows(x: Tensor, pool: Tensor, state_rows: Tensor, weight: Tensor, dilation: int) -> Tensor:
    """`causal_conv` of one new token in each of R sequences.

    x fp32 [R, C]; pool [rows, (K-1)*dilation, C], of which `state_rows` int64 [R] (distinct) are the histories and move
    on; weight [K, C]. Returns [R, C]. A row's bits don't depend on the others.
    """
    extended = torch.cat((pool.index_select(0, state_rows), x.unsqueeze(1)), dim=1)
    y = extended[:, 0] * weight[0]
    for tap in range(1, weight.shape[0]):
        y.addcmul_(extended[:, tap * dilation], weight[tap])
    pool.index_copy_(0, state_rows, extended[:, 1:])
    return functional.silu(y)
