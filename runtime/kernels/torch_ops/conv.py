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
