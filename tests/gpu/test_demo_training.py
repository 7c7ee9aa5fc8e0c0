"""A demo model's training on a GPU: attention by blocks reads and learns like attention."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from demo.architecture import Architecture
from demo.model.attention import SparseAttention
from demo.model.student import Student

from tests.support.tiny_student import some_documents

pytestmark = pytest.mark.gpu


def test_attention_by_blocks_reads_and_learns_like_attention() -> None:
    torch.manual_seed(4)
    rows, length = 3, 1024
    attention = SparseAttention(Architecture()).cuda().bfloat16()
    document = some_documents(rows, length, longest=600).cuda()
    x = torch.randn(rows, length, Architecture().hidden_size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    cos, sin = Student(Architecture()).rotary(length, x.device, x.dtype)
    results = []
    for is_blockwise in (False, True):
        attention.is_blockwise = is_blockwise
        torch._dynamo.reset()
        read = torch.compile(attention, fullgraph=True, dynamic=False)(x, cos, sin, document)
        weights = [parameter for name, parameter in attention.named_parameters() if "indexer" not in name]
        results.append((read, *torch.autograd.grad(read.float().square().sum(), (x, *weights))))
    for plain, blockwise in zip(*results, strict=True):
        error = (blockwise.float() - plain.float()).norm() / plain.float().norm()
        assert error < 2e-2, error
