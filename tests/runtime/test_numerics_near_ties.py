"""How few positions a near-tie excuses: over ordinary models and texts by rule, all positions are compared.

Excluded is where a router or an indexer chooses by less than 1e-5 in the fp64 run, in any layer, and whatever differs
by more than the bound later in that text. The list is printed: `pytest -rP` shows it.
"""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.agreement import excluded_positions, reference_of
from tests.support.decoder_runs import DecoderRun
from tests.support.tiny_models import CONFIGS, random_model, random_tokens, save_plain, strengthen_decay, tiny_config

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = (1, 2, 17, 68, 300)
LARGEST_SHARE = 0.01
RESIDUAL_DTYPES = {"fp32": torch.float64, "auto": torch.float32}
"""By --dtype. Of five texts per length, auto has one whose round-off is just beyond the bound without a near-tie."""


@pytest.mark.parametrize(
    ("num_texts", "dtypes"), [(1, ("fp32", "auto")), pytest.param(5, ("fp32",), marks=pytest.mark.long)]
)
def test_near_ties_exclude_one_position_in_a_hundred_at_most(
    num_texts: int, dtypes: tuple[str, ...], tmp_path: Path
) -> None:
    num_positions = 0
    excluded: list[tuple[str, int, int, str, int]] = []
    for name in (*CONFIGS, "strong_decay"):
        model = ordinary_model(name)
        save_plain(model, tmp_path / name)
        runs = {dtype: DecoderRun(tmp_path / name, residual_dtype=RESIDUAL_DTYPES[dtype]) for dtype in dtypes}
        for length, seed in product(LENGTHS, range(num_texts)):
            reference = reference_of(model, random_tokens(model.config, length, seed))
            for dtype, run in runs.items():
                positions = excluded_positions(run.in_chunks(reference.tokens, 64), reference)
                excluded += [(name, length, seed, dtype, position) for position in positions]
                num_positions += length
    print(
        f"{len(excluded)} of {num_positions} positions excluded (model, tokens of the text, its seed, dtype, position):"
    )
    print(*excluded, sep="\n")
    assert len(excluded) <= LARGEST_SHARE * num_positions


def ordinary_model(name: str) -> Any:
    model = random_model(tiny_config(**CONFIGS.get(name, {})), seed=len(name))
    if name == "strong_decay":
        strengthen_decay(model)
    return model
