"""What overlap takes from the device beside the serial sequence, by the driver's own count: no more than its line."""

import json

import torch

from runtime.benches.decode_rig import Rig, RoutedSteps, graph_bytes
from runtime.benches.synthetic import TINY, StoreFilling, synthetic_spec
from runtime.execute.overlap import LEVELS
from runtime.execute.streams import DecodeStreams
from runtime.memory.budget import OVERLAP_BYTES


def test_overlap_costs_no_more_than_its_line(device: torch.device) -> None:
    """Graphs of 48 layers and one to four rows, as many launches as the largest model has."""
    spec, streams = synthetic_spec(TINY, 48), DecodeStreams(device)
    filling = StoreFilling(spec, 4, is_pinned=True)
    rig = Rig(spec, "bf16", 4, 255, device, streams)
    steps = RoutedSteps(rig, rig.experts(filling.store(), "rule", 400), {})
    steps.build("resident")
    # Someone else on the GPU may take or free memory meanwhile: that is seldom the same twice.
    rounds = [graph_bytes(rig, steps, LEVELS) for _ in range(3)]
    least = {level: min(found[level] for found in rounds) for level in LEVELS}
    print(json.dumps({"bytes": least, "cost": {level: least[level] - least["off"] for level in LEVELS}}))
    assert all(least[level] - least["off"] <= OVERLAP_BYTES for level in LEVELS)
    streams.close()
