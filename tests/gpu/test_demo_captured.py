"""A demo model's training on a GPU: recorded steps leave the weights that steps launched one by one leave."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from demo.captured import WARM_UPS, Captured
from demo.optimizer import Optimizer

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

    steps = Captured(learn, is_recorded), Captured(optimizer.step, is_recorded)
    losses = []
    for number, batch in enumerate(batches):
        ids.copy_(batch)
        losses.append(steps[0]().clone())
        optimizer.set_factor(0.1 * (number + 1))  # a recorded step must read the rate of now
        steps[1]()
    assert (steps[0].recorded is not None) == is_recorded
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
