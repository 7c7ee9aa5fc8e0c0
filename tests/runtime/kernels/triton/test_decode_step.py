"""A whole decode step with Triton's kernels gives what torch's ops give, slot for slot."""

import pytest
import torch

from runtime.kernels.ops import select_ops, triton_ops
from tests.support.synthetic_decode import SyntheticDecode

NUM_STEPS = 1


@pytest.mark.parametrize("policy", ["rule"])
def test_it_equals_torchs_ops(device: torch.device, policy: str) -> None:
    small = {"max_rows": 1, "num_layers": 2, "num_slots": 8, "captures": False}
    expected = SyntheticDecode(select_ops("cpu"), torch.device("cpu"), policy=policy, **small).run("off", 1, NUM_STEPS)
    found = SyntheticDecode(triton_ops(), device, policy=policy, **small).run("off", 1, NUM_STEPS)
    for ours, theirs in zip(found[:NUM_STEPS], expected[:NUM_STEPS], strict=True):
        assert (ours - theirs).abs().max() <= 1e-3 * theirs.abs().max()
    # Slot map and owners, unless a tie within round-off routed another way.
    for ours, theirs in zip(found[NUM_STEPS : NUM_STEPS + 2], expected[NUM_STEPS : NUM_STEPS + 2], strict=True):
        assert torch.equal(ours, theirs)
