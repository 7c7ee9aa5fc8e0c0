"""FP8 e4m3 from its byte, by integer arithmetic: cards before 8.9 have no such type."""

import triton
import triton.language as tl


@triton.jit
def decode_e4m3(bits):
    """fp32 values of e4m3 bytes (uint8), exact, subnormals included. The two bytes that are not a number read as 480.

    Sign, exponent and mantissa move to their places in fp32, which reads 2**-120 times the value.
    """
    wide = bits.to(tl.int32)
    shifted = ((wide & 0x80) << 24) | ((wide & 0x7F) << 20)
    return shifted.to(tl.float32, bitcast=True) * 1.329227995784916e36
