"""Each eviction policy once more, as plain Python over dicts and loops: the tests' oracle for victims.

Written from the definition of the policies, sharing nothing with the runtime: slots are a list of names or None, and
log2(2^a + 1) is computed with integers only.
"""

from fractions import Fraction
from math import isqrt

ONE = 1 << 16

Name = tuple[int, int]
"""(layer, expert)"""


def log2_scaled(value: Fraction) -> int:
    """2^16 * log2(value) rounded to the nearest integer, by squaring: exact decisions on big integers. value >= 1."""
    precision = 160
    mantissa = (value.numerator << precision) // value.denominator
    exponent = mantissa.bit_length() - 1 - precision
    mantissa >>= exponent
    result = exponent
    for _ in range(17):
        mantissa = (mantissa * mantissa) >> precision
        bit = mantissa >> (precision + 1)
        mantissa >>= bit
        result = 2 * result + bit
    return (result + 1) >> 1


def two_to_minus(step: int) -> Fraction:
    """2^-(step / 256) to 150 bits, by eight integer square roots."""
    precision = 300
    value = 1 << precision
    root = 1 << (precision + 1)
    power = [root]
    for _ in range(8):
        root = isqrt(root << precision)
        power.append(root)
    for bit in range(8):
        if step % 256 >> bit & 1:
            value = (value << precision) // power[8 - bit]
    return Fraction(value >> (step // 256), 1 << precision)


_TABLE: dict[int, int] = {}


def softplus2(step: int) -> int:
    """round(2^16 * log2(1 + 2^-(step/256)))"""
    if step not in _TABLE:
        _TABLE[step] = log2_scaled(1 + two_to_minus(step))
    return _TABLE[step]


def plus_one(log2_count: int) -> int:
    """log2(2^a + 1) for a in units of 2^-16, the distance to 0 rounded to 1/256, ends at 18."""
    step = (abs(log2_count) + 128) // 256
    return max(log2_count, 0) + (softplus2(step) if step < 18 * 256 else 0)


class LruModel:
    def __init__(self) -> None:
        self.clock = 0
        self.used_at: dict[Name, int] = {}

    def begin_step(self) -> None:
        pass

    def use(self, layer: int, rows: list[list[int]], logits: list[list[float]]) -> None:
        self.clock += 1
        for row in rows:
            for expert in row:
                self.used_at[layer, expert] = self.clock

    def score(self, name: Name, layer_now: int) -> Fraction:
        return Fraction(self.used_at.get(name, 0))


class RuleModel:
    def __init__(self, num_layers: int) -> None:
        self.num_layers = num_layers
        self.tok = 0
        self.last_tok: dict[Name, int] = {}
        self.log2_count: dict[Name, tuple[int, int]] = {}
        """(log2 of the count, token of the last use)"""

    def begin_step(self) -> None:
        self.tok += 1

    def use(self, layer: int, rows: list[list[int]], logits: list[list[float]]) -> None:
        for row, row_logits in zip(rows, logits, strict=True):
            lowest = min(row_logits[expert] for expert in row)
            for expert, logit in enumerate(row_logits):
                if logit >= lowest - 0.25:
                    name = (layer, expert)
                    self.last_tok[name] = max(self.last_tok.get(name, self.tok - 1), self.tok - 1)
        for expert in {expert for row in rows for expert in row}:
            name = (layer, expert)
            self.last_tok[name] = self.tok
            if name in self.log2_count:
                log2_count, at = self.log2_count[name]
                self.log2_count[name] = (plus_one(log2_count - (self.tok - at) * (ONE // 64)), self.tok)
            else:
                self.log2_count[name] = (0, self.tok)

    def score(self, name: Name, layer_now: int) -> tuple[int, int]:
        """Experts that never counted a use come before all others, as log2(0) does."""
        layer, _ = name
        is_ahead = layer > layer_now
        passed = 2**14
        if name in self.last_tok:
            passed = min(passed, self.tok - (1 if is_ahead else 0) - self.last_tok[name])
        wait = layer - layer_now if is_ahead else self.num_layers - layer_now + layer
        score = -(passed * ONE + 4 * ONE * wait // self.num_layers)
        if name not in self.log2_count:
            return (0, score)
        log2_count, at = self.log2_count[name]
        return (1, score + 3 * (log2_count - (self.tok - at) * (ONE // 64)))


class SlotModel:
    """The slot pool under a policy model; `ensure` returns what it evicted, in order."""

    def __init__(self, policy: LruModel | RuleModel, num_slots: int) -> None:
        self.policy = policy
        self.slots: list[Name | None] = [None] * num_slots

    def ensure(self, layer: int, rows: list[list[int]], logits: list[list[float]]) -> list[tuple[int, int]]:
        """(expert, slot) of each miss."""
        self.policy.use(layer, rows, logits)
        routed = sorted({expert for row in rows for expert in row})
        missing = [expert for expert in routed if (layer, expert) not in self.slots]
        pinned = {(layer, expert) for expert in routed}
        placed = []
        for expert in missing:
            if None in self.slots:
                slot = self.slots.index(None)
            else:
                _, slot = min(
                    (self.policy.score(owner, layer), slot)
                    for slot, owner in enumerate(self.slots)
                    if owner is not None and owner not in pinned
                )
            self.slots[slot] = (layer, expert)
            placed.append((expert, slot))
        return placed
