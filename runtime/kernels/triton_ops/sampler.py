"""Draws the next token of each row on the device, the same one as its twin, in six launches over all rows.

Scan: every chunk of the vocabulary is penalised and summed up. Weigh: every token gets its key and weight (see the
twin). The cut of top-k and top-p is then searched by thresholds: *weigh* sums up below 32 of them over all keys there
are, *narrow* below 32 more inside the step where the cut lies. *Gather* lists the tokens of the step that is left (all
from the best on, where top-p follows top-k), *cut* finds the cut among them bit by bit, *draw* weighs what survives,
and the last of its blocks draws. All sums are of integers, so that no order of blocks shows.

Where more than 2,048 tokens are left to list, as of a row of equal logits, *cut* reads the whole row once per bit:
the same result, slowly.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.torch_ops import sampler as twin
from runtime.kernels.triton_ops.launch_order import await_last_launch, begins_early
from runtime.kernels.triton_ops.rows import is_last_arrival, row_kernel
from runtime.kernels.triton_ops.workspace import arrival_counters

_CHUNK = 1024
"""Tokens of one thread block."""
_THRESHOLDS = 32
_TILE = 128
"""Tokens that are compared with all thresholds at once."""
_LISTED = 2048
_ROW_TILE = 4096
"""Tokens of a whole row that one block reads at once."""
_KEY_END = tl.constexpr(twin.KEY_END)
_KEY_BITS = tl.constexpr(twin.KEY_BITS)
_FRACTION = tl.constexpr((1 << twin.KEY_BITS) - 1)
_SHIFT = tl.constexpr(twin.WEIGHT_BITS - twin.POLYNOMIAL_BITS)
_POLYNOMIAL = tl.constexpr(twin.POLYNOMIAL)
_DEGREE = tl.constexpr(len(twin.POLYNOMIAL) - 1)
_NUM_CHOICES = tl.constexpr(twin.NUM_CHOICES)
_NO_ID = tl.constexpr(0x7FFFFFFF)


def sample_rows(
    logits: Tensor, choices: Tensor, seen: Tensor, seen_rows: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor]:
    """See the twin."""
    num_rows, vocab_size = logits.shape
    device, num_chunks = logits.device, triton.cdiv(vocab_size, _CHUNK)
    chunk_tile = triton.next_power_of_2(num_chunks)

    def scratch(width: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(num_rows, width, dtype=dtype, device=device)

    penalised = scratch(num_chunks * _CHUNK, torch.float32)
    # A chunk's keys take the place of its values, which nobody needs any more.
    keys = penalised.view(torch.int32)
    weights, masses = scratch(num_chunks * _CHUNK, torch.int64), scratch(num_chunks, torch.int64)
    # Of each chunk: greatest and least finite value, greatest and sum of exponentials of the raw logits.
    facts, peak_ids = scratch(4 * num_chunks, torch.float32), scratch(num_chunks, torch.int32)
    # Below every threshold of both rounds.
    sums, num_listed = scratch(2 * _THRESHOLDS, torch.int64), scratch(1, torch.int32)
    listed_keys, listed_weights = scratch(_LISTED, torch.int32), scratch(_LISTED, torch.int64)
    cuts = torch.empty(num_rows, dtype=torch.int32, device=device)
    ids = torch.empty(num_rows, dtype=torch.int64, device=device)
    logprobs = torch.empty(num_rows, dtype=torch.float32, device=device)
    grid = (num_rows, num_chunks)
    sizes, order = {"chunk": _CHUNK, "num_thresholds": _THRESHOLDS}, begins_early(device)
    _scan_kernel[grid](
        logits, logits.stride(0), choices, seen, seen_rows, penalised, facts, peak_ids, sums, num_listed, num_chunks,
        vocab_size, **sizes, num_warps=4, enable_fp_fusion=False, **order,
    )  # fmt: skip
    _weigh_kernel[grid](
        penalised, facts, choices, keys, weights, sums, num_chunks, vocab_size, **sizes, tile=_TILE,
        chunk_tile=chunk_tile, num_warps=4, **order,
    )  # fmt: skip
    _narrow_kernel[grid](
        facts, choices, keys, weights, sums, num_chunks, vocab_size, **sizes, tile=_TILE, chunk_tile=chunk_tile,
        num_warps=4, **order,
    )  # fmt: skip
    _gather_kernel[grid](
        facts, choices, keys, weights, sums, num_listed, listed_keys, listed_weights, num_chunks, vocab_size, **sizes,
        most_listed=_LISTED, chunk_tile=chunk_tile, num_warps=4, **order,
    )  # fmt: skip
    _cut_kernel[(num_rows,)](
        facts, choices, keys, weights, sums, num_listed, listed_keys, listed_weights, cuts, num_chunks, vocab_size,
        **sizes, most_listed=_LISTED, row_tile=_ROW_TILE, chunk_tile=chunk_tile, num_warps=8, **order,
    )  # fmt: skip
    _draw_kernel[grid](
        logits, logits.stride(0), choices, seen, seen_rows, uniforms, keys, weights, facts, peak_ids, cuts, masses, ids,
        logprobs, arrival_counters(device, num_rows), num_chunks, vocab_size, chunk=_CHUNK, chunk_tile=chunk_tile,
        num_warps=4, **order,
    )  # fmt: skip
    return ids, logprobs


@triton.jit
def _finite(peak):
    """What to subtract before exp: a peak of -inf would leave no number."""
    return tl.where(peak == float("-inf"), 0.0, peak)


@triton.jit
def _key(values, peak, keys_per_unit):
    """int32 keys of fp32 values; fp64 in the order of the twin, which leaves the same bits."""
    distances = (peak.to(tl.float64) - values.to(tl.float64)) * keys_per_unit
    distances = tl.where(distances < _KEY_END, distances, _KEY_END + 0.0)
    # The peak's distance to itself is no number where it is infinite.
    return tl.where(values == peak, 0.0, distances).to(tl.int32)


@triton.jit
def _weight(keys):
    """int64 weights of int32 keys."""
    fraction = (keys & _FRACTION).to(tl.int64)
    power = tl.zeros_like(fraction) + _POLYNOMIAL[_DEGREE]
    for step in tl.static_range(_DEGREE):
        power = _POLYNOMIAL[_DEGREE - 1 - step] - ((power * fraction) >> _KEY_BITS)
    return (power << _SHIFT) >> (keys >> _KEY_BITS).to(tl.int64)


@triton.jit
def _num_best(choices, vocab_size):
    """How many tokens top-k keeps, ties aside."""
    top_k = tl.load(choices + 1)
    return tl.where((top_k == 0) | (top_k > vocab_size), vocab_size, top_k.to(tl.int32))


@triton.jit
def _has_cut(choices, vocab_size):
    is_drawn = tl.load(choices) != 0
    return is_drawn & ((_num_best(choices, vocab_size) < vocab_size) | (tl.load(choices + 2) < 1.0))


@triton.jit
def _row_peak(facts, num_chunks, chunk_tile: tl.constexpr):
    chunks = tl.arange(0, chunk_tile)
    return tl.max(tl.load(facts + chunks, mask=chunks < num_chunks, other=float("-inf")), 0)


@triton.jit
def _first_step(facts, choices, num_chunks, num_thresholds: tl.constexpr, chunk_tile: tl.constexpr):
    """Keys from one threshold of the first round to the next: as many as the least finite value needs."""
    chunks = tl.arange(0, chunk_tile)
    lows = tl.load(facts + num_chunks + chunks, mask=chunks < num_chunks, other=float("inf"))
    peak = _row_peak(facts, num_chunks, chunk_tile)
    last = _key(tl.minimum(tl.min(lows, 0), peak), peak, tl.load(choices))
    return last // num_thresholds + 1


@triton.jit
def _needed(choices, sums, vocab_size, num_thresholds: tl.constexpr):
    """How much must lie up to the cut of the search: tokens where there is a top-k, else weight."""
    num_best = _num_best(choices, vocab_size)
    share = (tl.load(choices + 2) * tl.load(sums + num_thresholds - 1).to(tl.float64)).to(tl.int64)
    return tl.where(num_best < vocab_size, num_best.to(tl.int64), tl.maximum(share, 1))


@triton.jit
def _chosen(sums, needed, low, below, step, num_thresholds: tl.constexpr):
    """The first key of the step where the cut lies, what lies below it, and how many keys the step has.

    `sums` are those below low + step, low + 2 * step, …, the last of them below the end; `below` those below `low`.
    """
    places = tl.arange(0, num_thresholds)
    found = tl.load(sums + places)
    is_short = found < needed
    place = tl.minimum(tl.sum(is_short.to(tl.int32), 0), num_thresholds - 1)
    below = tl.maximum(below, tl.max(tl.where(is_short & (places < place), found, 0), 0))
    low += place * step
    return low, below, tl.where(place == num_thresholds - 1, _KEY_END + 1 - low, step)


@triton.jit
def _sum_below(keys, weights, sums, counts, low, step, chunk: tl.constexpr, tile: tl.constexpr, num: tl.constexpr):
    """Add to `sums` what this chunk has below each threshold: tokens if `counts`, else weight."""
    places = tl.arange(0, num)
    # The last one is the end, above all keys.
    thresholds = tl.where(places == num - 1, _KEY_END + 1, tl.minimum(low + (places + 1) * step, _KEY_END + 1))
    total = tl.zeros((tile, num), tl.int64)
    for first in range(0, chunk, tile):
        tokens = first + tl.arange(0, tile)
        amounts = tl.where(counts, tl.full((tile,), 1, tl.int64), tl.load(weights + tokens))
        is_below = tl.load(keys + tokens)[:, None] < thresholds[None, :]
        total += tl.where(is_below, amounts[:, None], 0)
    tl.atomic_add(sums + places, tl.sum(total, 0), sem="relaxed")


@row_kernel
def _scan_kernel(
    logits, logits_stride, choices, seen, seen_rows, penalised, facts, peak_ids, sums, num_listed, num_chunks,
    vocab_size, chunk: tl.constexpr, num_thresholds: tl.constexpr,
):  # fmt: skip
    await_last_launch()
    row, part = tl.program_id(0), tl.program_id(1)
    choices += row * _NUM_CHOICES
    facts += row * 4 * num_chunks + part
    tokens = part * chunk + tl.arange(0, chunk)
    is_token = tokens < vocab_size
    raw = tl.load(logits + row * logits_stride + tokens, mask=is_token, other=float("-inf"))
    raw_peak = tl.max(raw, 0)
    tl.store(facts + 2 * num_chunks, raw_peak)
    tl.store(facts + 3 * num_chunks, tl.sum(tl.exp(raw - _finite(raw_peak)), 0))
    was_seen = tl.load(seen + tl.load(seen_rows + row) * vocab_size + tokens, mask=is_token, other=0) != 0
    presence, repetition = tl.load(choices + 4).to(tl.float32), tl.load(choices + 5).to(tl.float32)
    repeated = tl.where(raw > 0, tl.div_rn(raw, repetition + tl.zeros_like(raw)), raw * repetition) - presence
    values = tl.where(was_seen, repeated, raw)
    # What is no number is not drawn.
    values = tl.where(values == values, values, float("-inf"))
    tl.store(penalised + row * num_chunks * chunk + tokens, values)
    peak = tl.max(values, 0)
    tl.store(facts, peak)
    tl.store(facts + num_chunks, tl.min(tl.where(values > float("-inf"), values, float("inf")), 0))
    tl.store(peak_ids + row * num_chunks + part, tl.min(tl.where(values == peak, tokens, _NO_ID), 0))
    if part == 0:
        places = tl.arange(0, 2 * num_thresholds)
        tl.store(sums + row * 2 * num_thresholds + places, tl.zeros((2 * num_thresholds,), tl.int64))
        tl.store(num_listed + row, 0)


@row_kernel
def _weigh_kernel(
    penalised, facts, choices, keys, weights, sums, num_chunks, vocab_size,
    chunk: tl.constexpr, num_thresholds: tl.constexpr, tile: tl.constexpr, chunk_tile: tl.constexpr,
):  # fmt: skip
    await_last_launch()
    row, part = tl.program_id(0), tl.program_id(1)
    choices += row * _NUM_CHOICES
    keys_per_unit = tl.load(choices)
    if keys_per_unit == 0:
        return
    facts += row * 4 * num_chunks
    first = (row * num_chunks + part) * chunk
    places = tl.arange(0, chunk)
    values = tl.load(penalised + first + places)
    found = _key(values, _row_peak(facts, num_chunks, chunk_tile), keys_per_unit)
    # Behind the last token nothing counts, not even as the last key.
    found = tl.where(part * chunk + places < vocab_size, found, _KEY_END + 1)
    tl.debug_barrier()
    tl.store(keys + first + places, found)
    tl.store(weights + first + places, _weight(found))
    if _has_cut(choices, vocab_size):
        step = _first_step(facts, choices, num_chunks, num_thresholds, chunk_tile)
        counts = _num_best(choices, vocab_size) < vocab_size
        tl.debug_barrier()
        _sum_below(
            keys + first, weights + first, sums + row * 2 * num_thresholds, counts, 0, step, chunk, tile, num_thresholds
        )


@row_kernel
def _narrow_kernel(
    facts, choices, keys, weights, sums, num_chunks, vocab_size,
    chunk: tl.constexpr, num_thresholds: tl.constexpr, tile: tl.constexpr, chunk_tile: tl.constexpr,
):  # fmt: skip
    await_last_launch()
    row, part = tl.program_id(0), tl.program_id(1)
    choices += row * _NUM_CHOICES
    if _has_cut(choices, vocab_size):
        sums += row * 2 * num_thresholds
        step = _first_step(facts + row * 4 * num_chunks, choices, num_chunks, num_thresholds, chunk_tile)
        needed = _needed(choices, sums, vocab_size, num_thresholds)
        low, _below, step = _chosen(sums, needed, 0, needed * 0, step, num_thresholds)
        first = (row * num_chunks + part) * chunk
        counts = _num_best(choices, vocab_size) < vocab_size
        _sum_below(
            keys + first, weights + first, sums + num_thresholds, counts, low, step // num_thresholds + 1, chunk, tile,
            num_thresholds,
        )  # fmt: skip


@triton.jit
def _last_step(facts, choices, sums, num_chunks, vocab_size, num_thresholds: tl.constexpr, chunk_tile: tl.constexpr):
    """What is left after both rounds: first key, what lies below it, number of keys, and how much is needed."""
    needed = _needed(choices, sums, vocab_size, num_thresholds)
    step = _first_step(facts, choices, num_chunks, num_thresholds, chunk_tile)
    low, below, step = _chosen(sums, needed, 0, needed * 0, step, num_thresholds)
    step = step // num_thresholds + 1
    low, below, step = _chosen(sums + num_thresholds, needed, low, below, step, num_thresholds)
    return low, below, step, needed


@triton.jit
def _is_nested(choices, vocab_size):
    """Top-p's mass is that of top-k's tokens: all of them must be looked at."""
    return (_num_best(choices, vocab_size) < vocab_size) & (tl.load(choices + 2) < 1.0)


@row_kernel
def _gather_kernel(
    facts, choices, keys, weights, sums, num_listed, listed_keys, listed_weights, num_chunks, vocab_size,
    chunk: tl.constexpr, num_thresholds: tl.constexpr, most_listed: tl.constexpr, chunk_tile: tl.constexpr,
):  # fmt: skip
    await_last_launch()
    row, part = tl.program_id(0), tl.program_id(1)
    choices += row * _NUM_CHOICES
    if _has_cut(choices, vocab_size):
        low, _below, step, _all = _last_step(
            facts + row * 4 * num_chunks, choices, sums + row * 2 * num_thresholds, num_chunks, vocab_size,
            num_thresholds, chunk_tile,
        )  # fmt: skip
        high = low + step
        low = tl.where(_is_nested(choices, vocab_size), 0, low)
        places = (row * num_chunks + part) * chunk + tl.arange(0, chunk)
        found = tl.load(keys + places)
        is_listed = (found >= low) & (found < high)
        count = tl.sum(is_listed.to(tl.int32), 0)
        if count > 0:
            targets = tl.atomic_add(num_listed + row, count, sem="relaxed")
            targets += tl.cumsum(is_listed.to(tl.int32), 0) - 1
            is_listed = is_listed & (targets < most_listed)
            tl.store(listed_keys + row * most_listed + targets, found, mask=is_listed)
            tl.store(listed_weights + row * most_listed + targets, tl.load(weights + places), mask=is_listed)


@triton.jit
def _amount(keys, weights, num_tokens, last_key, counts: tl.constexpr, tile: tl.constexpr):
    """Tokens (`counts`) or weight of a whole row up to a key."""
    total = tl.zeros((tile,), tl.int64)
    for first in range(0, num_tokens, tile):
        places = first + tl.arange(0, tile)
        is_counted = tl.load(keys + places, mask=places < num_tokens, other=_KEY_END + 1) <= last_key
        if counts:
            total += is_counted.to(tl.int64)
        else:
            total += tl.load(weights + places, mask=is_counted, other=0)
    return tl.sum(total, 0)


@triton.jit
def _least_key_of_row(keys, weights, num_tokens, first_key, last_key, needed, counts: tl.constexpr, tile: tl.constexpr):
    """The least key, from the first to the last, up to which there is as much as is needed."""
    while first_key < last_key:
        middle = first_key + (last_key - first_key) // 2
        is_enough = _amount(keys, weights, num_tokens, middle, counts, tile) >= needed
        last_key = tl.where(is_enough, middle, last_key)
        first_key = tl.where(is_enough, first_key, middle + 1)
    return first_key


@triton.jit
def _least_key(keys, amounts, first_key, last_key, needed):
    """The same among tokens at hand."""
    while first_key < last_key:
        middle = first_key + (last_key - first_key) // 2
        is_enough = tl.sum(tl.where(keys <= middle, amounts, 0), 0) >= needed
        last_key = tl.where(is_enough, middle, last_key)
        first_key = tl.where(is_enough, first_key, middle + 1)
    return first_key


@triton.jit
def _share_of_best(choices, num_best, num_above, mass_above, cut):
    """The weight that top-p needs of top-k's tokens: those above the cut, and as many of its equals as make up k."""
    of_equals = (num_best - num_above) * tl.max(_weight(cut + tl.zeros((1,), tl.int32)), 0)
    mass = mass_above + of_equals
    return tl.maximum((tl.load(choices + 2) * mass.to(tl.float64)).to(tl.int64), 1)


@triton.jit
def _cut_of_listed(keys, weights, num_listed, low, high, below, needed, choices, vocab_size, most_listed: tl.constexpr):
    places = tl.arange(0, most_listed)
    is_listed = places < num_listed
    found = tl.load(keys + places, mask=is_listed, other=_KEY_END + 1)
    mass = tl.load(weights + places, mask=is_listed, other=0)
    ones = is_listed.to(tl.int64)
    if _is_nested(choices, vocab_size):
        cut = _least_key(found, ones, low, high, needed)
        num_above = tl.sum(tl.where(found < cut, ones, 0), 0)
        mass_above = tl.sum(tl.where(found < cut, mass, 0), 0)
        share = _share_of_best(choices, needed, num_above, mass_above, cut)
        cut = _least_key(found, mass, low * 0, cut, share)
    else:
        amounts = tl.where(_num_best(choices, vocab_size) < vocab_size, ones, mass)
        cut = _least_key(found, amounts, low, high, needed - below)
    return cut


@triton.jit
def _cut_of_row(keys, weights, low, high, needed, choices, vocab_size, tile: tl.constexpr):
    if _num_best(choices, vocab_size) < vocab_size:
        cut = _least_key_of_row(keys, weights, vocab_size, low, high, needed, True, tile)
        if _is_nested(choices, vocab_size):
            num_above = _amount(keys, weights, vocab_size, cut - 1, True, tile)
            mass_above = _amount(keys, weights, vocab_size, cut - 1, False, tile)
            share = _share_of_best(choices, needed, num_above, mass_above, cut)
            cut = _least_key_of_row(keys, weights, vocab_size, low * 0, cut, share, False, tile)
    else:
        cut = _least_key_of_row(keys, weights, vocab_size, low, high, needed, False, tile)
    return cut


@row_kernel
def _cut_kernel(
    facts, choices, keys, weights, sums, num_listed, listed_keys, listed_weights, cuts, num_chunks, vocab_size,
    chunk: tl.constexpr, num_thresholds: tl.constexpr, most_listed: tl.constexpr, row_tile: tl.constexpr,
    chunk_tile: tl.constexpr,
):  # fmt: skip
    await_last_launch()
    row = tl.program_id(0)
    choices += row * _NUM_CHOICES
    cut = tl.load(choices + 3).to(tl.int32)
    if _has_cut(choices, vocab_size):
        low, below, step, needed = _last_step(
            facts + row * 4 * num_chunks, choices, sums + row * 2 * num_thresholds, num_chunks, vocab_size,
            num_thresholds, chunk_tile,
        )  # fmt: skip
        high = tl.minimum(low + step - 1, _KEY_END)
        count = tl.load(num_listed + row)
        if count <= most_listed:
            found = _cut_of_listed(
                listed_keys + row * most_listed, listed_weights + row * most_listed, count, low, high, below, needed,
                choices, vocab_size, most_listed,
            )  # fmt: skip
            cut = tl.minimum(cut, found)
        else:
            first = row * num_chunks * chunk
            found = _cut_of_row(keys + first, weights + first, low, high, needed, choices, vocab_size, row_tile)
            cut = tl.minimum(cut, found)
    tl.store(cuts + row, cut)


@row_kernel
def _draw_kernel(
    logits, logits_stride, choices, seen, seen_rows, uniforms, keys, weights, facts, peak_ids, cuts, masses, ids,
    logprobs, counters, num_chunks, vocab_size, chunk: tl.constexpr, chunk_tile: tl.constexpr,
):  # fmt: skip
    await_last_launch()
    row, part = tl.program_id(0), tl.program_id(1)
    chunks, stats = tl.arange(0, chunk_tile), row * num_chunks
    is_chunk = chunks < num_chunks
    facts += row * 4 * num_chunks
    places = tl.arange(0, chunk)
    if tl.load(choices + row * _NUM_CHOICES) == 0:
        if part > 0:
            return
        chunk_peaks = tl.load(facts + chunks, mask=is_chunk, other=float("-inf"))
        firsts = tl.load(peak_ids + stats + chunks, mask=is_chunk, other=_NO_ID)
        token = tl.min(tl.where(chunk_peaks == tl.max(chunk_peaks, 0), firsts, _NO_ID), 0)
    else:
        cut = tl.load(cuts + row)
        tl.store(masses + stats + part, tl.sum(_kept(keys, weights, (stats + part) * chunk + places, cut), 0))
        if not is_last_arrival(counters + row, num_chunks):
            return
        summed = tl.cumsum(tl.load(masses + stats + chunks, mask=is_chunk, other=0, cache_modifier=".cg"), 0)
        total = tl.max(summed, 0)
        goal = tl.minimum((tl.load(uniforms + row) * total.to(tl.float64)).to(tl.int64), total - 1)
        drawn = tl.sum((summed <= goal).to(tl.int32), 0)
        before = tl.max(tl.where(chunks < drawn, summed, 0), 0)
        within = before + tl.cumsum(_kept(keys, weights, (stats + drawn) * chunk + places, cut), 0)
        token = drawn * chunk + tl.sum((within <= goal).to(tl.int32), 0)
    raw = tl.load(facts + 2 * num_chunks + chunks, mask=is_chunk, other=float("-inf"))
    raw_peak = _finite(tl.max(raw, 0))
    sums = tl.load(facts + 3 * num_chunks + chunks, mask=is_chunk, other=0.0)
    log_total = tl.log(tl.sum(sums * tl.exp(_finite(raw) - raw_peak), 0))
    tl.store(ids + row, token.to(tl.int64))
    # In this order: the peak plus a small logarithm would be rounded to the peak's last bit.
    tl.store(logprobs + row, tl.load(logits + row * logits_stride + token) - raw_peak - log_total)
    tl.store(seen + tl.load(seen_rows + row) * vocab_size + token, 1)


@triton.jit
def _kept(keys, weights, places, cut):
    """Weights of the tokens that survive, zero of the others."""
    return tl.where(tl.load(keys + places) <= cut, tl.load(weights + places), 0)
