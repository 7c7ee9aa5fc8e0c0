"""The numbers of the `rule` policy, which its CPU and device forms share. Their meaning is in `experts.policy_rule`."""

import math

import numpy as np
from numpy.typing import NDArray

FRACTION_BITS = 16
BETA = 4
LOG2_WEIGHT = 3
LARGEST_AGE = 1 << 14
"""Cap of k, tokens."""
DECAY_SHIFT = 10
"""2^16 / 64: log2(c) lost per token."""
NEAR_MISS_LOGIT = np.float32(0.25)
"""An expert whose router logit is within this of the lowest routed one counts as used one token ago."""
NEVER_TOKEN = -(1 << 20)
"""last_tok of an expert that was never used: its k is at the cap."""
NEVER_LOG2 = -(1 << 40)
"""log2 of a count of 0: below every count that decayed, for any number of tokens that fits int64."""
STEP_BITS = 8
"""Distance of two entries of the log2 table: 2^8 units, 1/256."""
LARGEST_STEP = 18 << STEP_BITS
"""Number of steps up to x = 18."""


def _log2_table() -> NDArray[np.int64]:
    steps = 1 << STEP_BITS
    values = [math.log2(1.0 + 2.0 ** (-i / steps)) * (1 << FRACTION_BITS) for i in range(LARGEST_STEP)]
    return np.array([round(value) for value in values] + [0], np.int64)


LOG2_TABLE = _log2_table()
