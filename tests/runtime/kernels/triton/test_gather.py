"""Rows gathered by Triton are those of the twin, wherever the table lies."""

import pytest
import torch

from runtime.kernels.torch_ops import gather as twin
from runtime.kernels.triton_ops import gather


@pytest.mark.parametrize(("num_rows", "row_bytes", "num_ids"), [(7, 160, 16), (300, 1, 5), (64, 90, 33)])
def test_it_equals_the_twin(device: torch.device, num_rows: int, row_bytes: int, num_ids: int) -> None:
    table = torch.randint(256, (num_rows, row_bytes), dtype=torch.uint8)
    ids = torch.randint(num_rows, (num_ids,))
    places = [table] if device.type == "cpu" else [table.to(device), table.pin_memory()]
    for place in places:
        assert torch.equal(gather.gather_rows(place, ids.to(device)).cpu(), twin.gather_rows(table, ids))
