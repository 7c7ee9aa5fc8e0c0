"""Narrow floats decoded by integer arithmetic into fp32, since compute capability 8.6 has no type for them.

A narrow float's bits, put where fp32 keeps its sign, exponent and mantissa, mean the same number times a power of two,
zeros and subnormals included: `E2M1_SCALE` and `E4M3_SCALE` take it back. That is exact, but a small number may be a
subnormal fp32 on the way, so multiply by a power of two before anything rounds.
"""

import triton
import triton.language as tl

E2M1_SCALE = tl.constexpr(2.0**126)
"""Value of an e2m1 number over the fp32 that `e2m1_pair` returns; fp32 can't hold its square."""
E4M3_SCALE = tl.constexpr(2.0**120)
E4M3_INPUT_SCALE = tl.constexpr(2.0**64)
"""What inputs are multiplied by before they meet `e4m3_tiny` numbers."""

_TWO_CODES = tl.constexpr(0x000F000F)
_TO_TOP_OF_LOW = tl.constexpr((1 << 28) + (1 << 22))
_TO_TOP_OF_HIGH = tl.constexpr((1 << 12) + (1 << 6))
_E2M1_BITS = tl.constexpr(0x81C00000 - (1 << 32))
"""Sign, the two lowest exponent bits and the highest mantissa bit, as int32."""
_E4M3_BITS = tl.constexpr(0x87F00000 - (1 << 32))
_E4M3_BF16_BITS = tl.constexpr(0x87F0 - (1 << 16))
_SIGNS_OF_TWO = tl.constexpr(0x80008000 - (1 << 32))
_BITS_OF_TWO = tl.constexpr(0x07F007F0)


@triton.jit
def e2m1_pair(word, PLACE: tl.constexpr):
    """Codes PLACE and PLACE + 4 of the eight e2m1 codes in an int32 word, over `E2M1_SCALE`. PLACE 0 or 1.

    One product copies a code to the sign and to the exponent; what else it leaves lies elsewhere and does not carry.
    """
    pair = word & (_TWO_CODES << (4 * PLACE))
    low = (pair * (_TO_TOP_OF_LOW >> (4 * PLACE))) & _E2M1_BITS
    high = (pair * (_TO_TOP_OF_HIGH >> (4 * PLACE))) & _E2M1_BITS
    return low.to(tl.float32, bitcast=True), high.to(tl.float32, bitcast=True)


@triton.jit
def e4m3_small(signed_bytes):
    """e4m3 numbers in int8, over `E4M3_SCALE`. The bit patterns of NaN read as 480."""
    return ((signed_bytes.to(tl.int32) << 20) & _E4M3_BITS).to(tl.float32, bitcast=True)


@triton.jit
def e4m3_tiny(signed_bytes):
    """The same numbers as bf16, the smallest of which are subnormal: for products with wide sums."""
    return ((signed_bytes.to(tl.int16) << 4) & _E4M3_BF16_BITS).to(tl.bfloat16, bitcast=True)


@triton.jit
def e4m3_tiny_halves(words):
    """The same of int32 words [n, m], four numbers in each: bf16 [n, 2m] of every even number, and of every odd one.

    Two numbers at a time stay in one word, as tensor cores take them: seven instructions for four numbers.
    """
    even = ((words << 8) & _SIGNS_OF_TWO) | ((words << 4) & _BITS_OF_TWO)
    odd = (words & _SIGNS_OF_TWO) | ((words >> 4) & _BITS_OF_TWO)
    return _two_bf16(even), _two_bf16(odd)


@triton.jit
def _two_bf16(words):
    """bf16 [n, 2m] that lie in int32 words [n, m], the lower half first."""
    low = words.to(tl.int16).to(tl.bfloat16, bitcast=True)
    high = (words >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return tl.reshape(tl.join(low, high), (words.shape[0], 2 * words.shape[1]))


@triton.jit
def dot_word(word, x, FIRST: tl.constexpr, total):
    """`total` plus the products of a word's eight e2m1 codes with x[FIRST] .. x[FIRST + 7], one after another."""
    for step in tl.static_range(4):
        low, high = e2m1_pair(word >> (8 * (step // 2)), step % 2)
        total = tl.fma(low, x[FIRST + step], total)
        total = tl.fma(high, x[FIRST + step + 4], total)
    return total
