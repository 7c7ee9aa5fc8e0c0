"""What the tests of the runtime share."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def own_draws() -> None:
    """What a test draws hangs neither on the tests before it nor on the process that runs it."""
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Torch computes on one thread while a file's tests run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
