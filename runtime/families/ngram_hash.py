"""Constants of the n-gram embedding's hash, computed in plain integers: multipliers, head sizes, head offsets.

The formulas are those of transformers' Qwen4ExpTextNGramEmbedding; checkpoints store the results as buffers, which
the reader compares with these.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from runtime.spec import NgramSpec

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_LAYER_SEED_STEP = 10007


@dataclass(frozen=True)
class NgramHash:
    """Of one n-gram layer: row of head k = (mix mod head_sizes[k]) + head_offsets[k], of `table_rows` in the table."""

    multipliers: tuple[int, ...]
    head_sizes: tuple[int, ...]
    head_offsets: tuple[int, ...]
    table_rows: int


@lru_cache(maxsize=16)
def ngram_hash(spec: NgramSpec, vocab_size: int, module_index: int) -> NgramHash:
    """Constants of the `module_index`-th n-gram layer (its position among the model's n-gram layers).

    Multiplier j is the odd number 2*(splitmix64(seed + 10007*index + GAMMA*(j+1)) mod half) + 1 with
    half = (2**63 - 1) // vocab_size // 2; head sizes are consecutive primes from `vocab_size_base` on.
    """
    sizes = _primes_from(spec.vocab_size_base, (module_index + 1) * spec.num_heads)[module_index * spec.num_heads :]
    offsets = tuple(sum(sizes[:head]) for head in range(spec.num_heads))
    total = sum(sizes)
    return NgramHash(
        multipliers=_multipliers(spec, vocab_size, module_index),
        head_sizes=sizes,
        head_offsets=offsets,
        table_rows=-(-total // spec.vocab_divisor) * spec.vocab_divisor,
    )


def _multipliers(spec: NgramSpec, vocab_size: int, module_index: int) -> tuple[int, ...]:
    half = max(1, ((1 << 63) - 1) // vocab_size // 2)
    seed = spec.seed + _LAYER_SEED_STEP * module_index
    return tuple(2 * (_splitmix64((seed + _GAMMA * (j + 1)) & _MASK) % half) + 1 for j in range(spec.ngram_size))


def _splitmix64(value: int) -> int:
    value = (value + _GAMMA) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _primes_from(start: int, count: int) -> tuple[int, ...]:
    primes: list[int] = []
    candidate = start
    while len(primes) < count:
        if _is_prime(candidate):
            primes.append(candidate)
        candidate += 1
    return tuple(primes)


def _is_prime(value: int) -> bool:
    if value < 4:
        return value >= 2
    return value % 2 == 1 and all(value % divisor for divisor in range(3, math.isqrt(value) + 1, 2))
