"""What keeps the bits of a row the same, whoever shares its batch.

One compiled kernel serves every number of rows and every alignment: `row_kernel` turns off all specialisation on
arguments, so layouts, and with them the order of sums inside a block, follow from the constants alone. Constants come
from the shape of one row. Rows meet only as lines of a tensor-core tile, which never mix, or not at all.
"""

import inspect
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

MAX_ROWS = 4
"""Rows of a decode step."""
VECTOR_BYTES = 16
"""Alignment that wide loads rely on."""
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


def row_kernel(function: Callable[..., Any], name_of: Callable[[Any], str] | None = None) -> Any:
    """`triton.jit` for kernels over rows: one binary per set of constants, which `name_of` names by them."""
    parameters = inspect.signature(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.annotation is not tl.constexpr]
    return triton.jit(function, repr=name_of, do_not_specialize=names, do_not_specialize_on_alignment=names)


def check_rows(num_rows: int) -> None:
    """Raises ValueError for more rows than a decode step has."""
    if not 1 <= num_rows <= MAX_ROWS:
        raise ValueError(f"a decode kernel takes 1 to {MAX_ROWS} rows, not {num_rows}; longer chunks run torch's ops")


def check_aligned(**tensors: Tensor) -> None:
    """Raises ValueError naming the tensor whose wide loads would not be aligned, or whose last dimension is strided."""
    for name, tensor in tensors.items():
        strides = [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
        if strides and strides[-1] != 1 and tensor.shape[-1] > 1:
            raise ValueError(f"{name} must be contiguous along its last dimension, its strides are {tensor.stride()}")
        offsets = [stride * tensor.element_size() for stride in strides if stride != 1]
        if any(offset % VECTOR_BYTES for offset in (tensor.data_ptr(), *offsets)):
            raise ValueError(f"{name} must start every row at a multiple of {VECTOR_BYTES} bytes")


def check_contiguous(**tensors: Tensor) -> None:
    """Raises ValueError naming the tensor that has gaps or another order."""
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous, its strides are {tensor.stride()} for {tuple(tensor.shape)}")


@triton.jit
def row_sum(values, axis: tl.constexpr):
    """The sum of one row's values: a tree fixed by the constants of the kernel."""
    return tl.sum(values, axis=axis)


@triton.jit
def dot(left, right, total):
    """total + left @ right in fp32; products of 16-bit numbers are exact, fp32 ones are not rounded to tf32."""
    if INTERPRETED:
        return tl.dot(_widened(left), _widened(right), total)
    return tl.dot(left, right, total, input_precision="ieee")


@triton.jit
def _widened(values):
    """fp32 for the interpreter, which holds bf16 as integers and converts its subnormal numbers to others."""
    if values.dtype == tl.bfloat16:
        return (values.to(tl.int16, bitcast=True).to(tl.int32) << 16).to(tl.float32, bitcast=True)
    return values.to(tl.float32)


@triton.jit
def narrowed(x, dtype: tl.constexpr):
    """fp32 `x` in another type, rounded to the nearest as on hardware; the interpreter by itself cuts bf16 off."""
    if INTERPRETED and dtype == tl.bfloat16:
        bits = x.to(tl.int32, bitcast=True)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return x.to(dtype)


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def split_part(x, part, dtype: tl.constexpr):
    """Part 0, 1 or 2 of fp32 `x` as a sum of three 16-bit numbers, part 3 is zero. Three bf16 hold all 24 bits.

    fp16 loses what is below 2**-24, and takes nothing above 65504.
    """
    high = x.to(dtype)
    rest = x - high.to(tl.float32)
    middle = rest.to(dtype)
    low = (rest - middle.to(tl.float32)).to(dtype)
    chosen = tl.where(part == 0, high.to(tl.float32), tl.where(part == 1, middle.to(tl.float32), low.to(tl.float32)))
    return tl.where(part < 3, chosen, 0.0).to(dtype)


@triton.jit
def dot_wide(left, right, total):
    """total + left @ right for fp32 `left`: 22 bits of it, and of fp32 `right`."""
    if right.dtype == tl.float32:
        # Both in two parts of tf32, 11 bits each, and the product of the small ones left out.
        return tl.dot(left, right, total, input_precision="tf32x3")
    high = narrowed(left, right.dtype)
    low = narrowed(left - high.to(tl.float32), right.dtype)
    return dot(high, right, dot(low, right, total))


@triton.jit
def ordered_bits(values):
    """int32 that compare as the fp32 values do, -0.0 like 0.0."""
    bits = (values + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def value_of_ordered_bits(bits):
    """The fp32 values back."""
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.float32, bitcast=True)


@triton.jit
def places_of_largest(values, k):
    """int32 [1, block]: the places of the k largest of `values` among these, by index; -1 for all others.

    values int32 [1, block], of which at least k >= 1 are not negative; block < 2**16. Of equal ones the first are
    taken. Raises a border while k values reach it: each time to the best of eight higher ones, of which the first is
    the next number, so that the search ends as well where all that are left are equal.
    """
    tried = tl.arange(0, 8)
    border, shift = tl.zeros((), tl.int32), tl.full((), 28, tl.int32)
    num_above, num_reach = tl.full((), 1 << 16, tl.int32), tl.zeros((), tl.int32)
    while (num_above >= k) & (num_reach != k):
        steps = tl.where(tried == 0, 1, tried << shift)
        # A hex digit for each of the eight, counting up to eight values.
        reached = tl.minimum(tl.maximum(values - border, 0) >> shift, 7)
        digits = tl.where(values > border, 0x11111111 >> (28 - 4 * reached), 0)
        digits = tl.sum(tl.reshape(digits, (8, values.shape[1] // 8)), 0)
        counts = tl.sum((digits[None, :] >> (4 * tried)[:, None]) & 15, 1)
        num_above, can_rise = tl.max(counts, 0), counts >= k
        num_reach = tl.min(tl.where(can_rise, counts, 1 << 16), 0)
        border += tl.max(tl.where(can_rise, steps, 0), 0)
        shift = tl.maximum(shift - 3, 0)
    num_equal = tl.where(num_reach == k, k, k - num_above)
    is_above, is_equal = values > border, values == border
    # Two counts in one scan.
    counted = tl.cumsum(is_above.to(tl.int32) + (is_equal.to(tl.int32) << 16), 1)
    equal = (counted >> 16) & 0xFFFF
    is_chosen = is_above | (is_equal & (equal <= num_equal))
    return tl.where(is_chosen, (counted & 0xFFFF) + tl.minimum(equal, num_equal) - 1, -1)


@triton.jit
def is_last_arrival(counter, num_arrivals):
    """Whether this block is the last of `num_arrivals` to get here; what the others stored before is then visible.

    The counter must be zero at the first call and is zero again after the last.
    """
    tl.debug_barrier()
    is_last = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == num_arrivals - 1
    if is_last:
        tl.store(counter, 0)
    tl.debug_barrier()
    return is_last
