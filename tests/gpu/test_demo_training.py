"""A demo model's training on a GPU: recorded steps train like launched ones, attention by blocks like attention."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from demo.architecture import Architecture
from demo.captured import WARM_UPS, Captured
from demo.model.attention import SparseAttention
from demo.model.student import Student
from demo.optimizer import Optimizer

from tests.support.tiny_student import some_documents

pytestmark = pytest.mark.gpu

WORDS, WIDTH, STEPS = 50, 48, WARM_UPS + 5


class Small(nn.Module):
    """A parameter for each of the optimiser's groups."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.indexer = nn.Linear(WIDTH, WIDTH)
        self.inner = nn.Linear(WIDTH, 2 * WIDTH)
        self.outer = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        x = x + self.outer(torch.relu(self.inner(x + self.indexer(x))))
        return x @ self.embed.weight.T


def trained(batches: Tensor, is_recorded: bool) -> dict[str, Tensor]:
    torch.manual_seed(3)
    model, ids = Small().cuda(), torch.zeros_like(batches[0])
    optimizer = Optimizer(model)

    def learn() -> Tensor:
        loss = nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        return loss.detach()

    steps = learn, optimizer.step
    if is_recorded:
        steps = Captured(learn), Captured(optimizer.step)
    losses = []
    for number, batch in enumerate(batches):
        ids.copy_(batch)
        losses.append(steps[0]().clone())
        optimizer.set_factor(0.1 * (number + 1))  # a recorded step must read the rate of now
        steps[1]()
    assert not is_recorded or all(step.recorded for step in steps)
    return {**model.state_dict(), "losses": torch.stack(losses)}


def test_recorded_steps_train_like_launched_ones() -> None:
    batches = torch.randint(0, WORDS, (STEPS, 16, 32), generator=torch.Generator().manual_seed(5)).cuda()
    launched, recorded = (trained(batches, is_recorded) for is_recorded in (False, True))
    torch.manual_seed(3)
    fresh = Small().state_dict()
    for name, tensor in launched.items():
        # The embedding's gradient is summed in no fixed order.
        torch.testing.assert_close(recorded[name], tensor, rtol=1e-3, atol=1e-4)
        assert name == "losses" or not torch.equal(tensor.cpu(), fresh[name])


@pytest.mark.parametrize("budget", [None, 64])
def test_attention_by_blocks_reads_and_learns_like_attention(budget: int | None) -> None:
    torch.manual_seed(4)
    rows, length = 3, 1024
    attention = SparseAttention(Architecture()).cuda().bfloat16()
    attention.budget = budget
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
