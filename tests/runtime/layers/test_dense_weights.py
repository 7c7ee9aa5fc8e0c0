"""Dense weights are refused by name where one value would spoil every answer."""

from pathlib import Path

import pytest
import torch

from runtime.errors import CheckpointError
from tests.support.decoder_runs import DecoderRun
from tests.support.tiny_models import random_model, save_plain, tiny_config


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "name",
    [
        "lm_head.weight",
        "model.layers.0.linear_attn.A_log",
        "model.layers.0.attn_hyper_connection.hc_norm.weight",
        "model.layers.3.self_attn.q_norm.weight",
        "model.layers.1.ple.conv1d.weight",
    ],
)
def test_values_that_are_not_finite_are_refused(name: str, value: float, tmp_path: Path) -> None:
    model = random_model(tiny_config(num_hidden_layers=4, ple_layer_ids=[2]))
    with torch.no_grad():
        model.state_dict()[name].view(-1)[-1] = value
    with pytest.raises(CheckpointError) as caught:
        DecoderRun(save_plain(model, tmp_path))
    message = str(caught.value)
    assert name in message
    assert "model.safetensors" in message
    assert "\n" not in message
