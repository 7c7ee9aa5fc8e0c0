"""Draws the next token of each row on the device, by the rules of `runtime.execute.sampler`, in three launches.

First every chunk of the vocabulary is penalised and summed up; then one block per row finds the least logit that
survives top-k and top-p; then every chunk weighs what survives, and the last one to finish draws. Sums of
probabilities are fp64. The cut is exact: the 256 best tokens lie in the 256 groups with the best maxima. Only where
more tokens than that survive is the whole row read again, bit by bit of the cut, with weights in fp32.
"""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.triton_ops.rows import (
    LOWEST,
    is_among_largest,
    is_last_arrival,
    kth_largest,
    ordered_bits,
    row_kernel,
    value_of_ordered_bits,
)
from runtime.kernels.triton_ops.workspace import arrival_counters
from runtime.options import SamplingOptions

_CHUNK = 1024
"""Tokens of one thread block."""
_GROUP = 16
_MOST_GROUPS = 256
"""Groups whose members are ranked, and the most tokens that are sure to be among them."""
NUM_CHOICES = 6


def pack_options(options: Sequence[SamplingOptions]) -> Tensor:
    """fp64 [R, 6] for `sample_rows`: temperature, top-k, top-p, log of min-p, presence and repetition penalty."""
    return torch.tensor(
        [
            (
                row.temperature,
                row.top_k,
                row.top_p,
                math.log(row.min_p) if row.min_p > 0.0 else -math.inf,
                row.presence_penalty,
                row.repetition_penalty,
            )
            for row in options
        ],
        dtype=torch.float64,
    )


def sample_rows(
    logits: Tensor, choices: Tensor, seen: Tensor, seen_rows: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor]:
    """Ids int64 [R] and log-probabilities fp32 [R] under the model's own distribution.

    logits fp32 [R, V], rows contiguous; choices of `pack_options`; seen uint8 [rows, V], of which row seen_rows int64
    [R] marks the tokens that were generated and gets the new one; uniforms fp64 [R] in [0, 1), unused by greedy rows.
    """
    num_rows, vocab_size = logits.shape
    device, num_chunks = logits.device, triton.cdiv(vocab_size, _CHUNK)
    num_groups = num_chunks * (_CHUNK // _GROUP)
    chunk_tile = triton.next_power_of_2(num_chunks)

    def scratch(width: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(num_rows, width, dtype=dtype, device=device)

    penalised, maxima = scratch(num_chunks * _CHUNK, torch.float32), scratch(num_groups, torch.float32)
    peaks, peak_ids = scratch(num_chunks, torch.float32), scratch(num_chunks, torch.int32)
    raw_peaks, raw_sums = scratch(num_chunks, torch.float32), scratch(num_chunks, torch.float32)
    masses, candidates = scratch(num_chunks, torch.float64), scratch(_MOST_GROUPS, torch.int32)
    cuts = torch.empty(num_rows, dtype=torch.float32, device=device)
    ids = torch.empty(num_rows, dtype=torch.int64, device=device)
    logprobs = torch.empty(num_rows, dtype=torch.float32, device=device)
    _scan_kernel[(num_rows, num_chunks)](
        logits, logits.stride(0), choices, seen, seen_rows, penalised, maxima, peaks, peak_ids, raw_peaks, raw_sums,
        masses, num_chunks, vocab_size, chunk=_CHUNK, group=_GROUP, num_choices=NUM_CHOICES, num_warps=4,
    )  # fmt: skip
    _cut_kernel[(num_rows,)](
        penalised, maxima, peaks, masses, choices, candidates, cuts, num_chunks, vocab_size, chunk=_CHUNK, group=_GROUP,
        num_choices=NUM_CHOICES, most_groups=_MOST_GROUPS, chunk_tile=chunk_tile,
        group_tile=chunk_tile * (_CHUNK // _GROUP), num_warps=16,
    )  # fmt: skip
    _draw_kernel[(num_rows, num_chunks)](
        logits, logits.stride(0), choices, seen, seen_rows, uniforms, penalised, peaks, peak_ids, raw_peaks, raw_sums,
        cuts, masses, ids, logprobs, arrival_counters(device, num_rows), num_chunks, vocab_size, chunk=_CHUNK,
        chunk_tile=chunk_tile, num_choices=NUM_CHOICES, num_warps=4,
    )  # fmt: skip
    return ids, logprobs


@triton.jit
def _finite(peak):
    """What to subtract before exp: a peak of -inf would leave no number."""
    return tl.where(peak == float("-inf"), 0.0, peak)


@triton.jit
def _scaled(values, peak, temperature):
    return (values.to(tl.float64) - peak.to(tl.float64)) / temperature


@triton.jit
def _num_best(choices, vocab_size):
    """How many tokens top-k keeps, ties aside."""
    top_k = tl.load(choices + 1)
    return tl.where((top_k == 0) | (top_k > vocab_size), vocab_size, top_k.to(tl.int32))


@row_kernel
def _scan_kernel(
    logits, logits_stride, choices, seen, seen_rows, penalised, maxima, peaks, peak_ids, raw_peaks, raw_sums, masses,
    num_chunks, vocab_size, chunk: tl.constexpr, group: tl.constexpr, num_choices: tl.constexpr,
):  # fmt: skip
    row, part = tl.program_id(0), tl.program_id(1)
    choices += row * num_choices
    places = tl.arange(0, chunk)
    tokens = part * chunk + places
    is_token = tokens < vocab_size
    raw = tl.load(logits + row * logits_stride + tokens, mask=is_token, other=float("-inf"))
    raw_peak = tl.max(raw, 0)
    tl.store(raw_peaks + row * num_chunks + part, raw_peak)
    tl.store(raw_sums + row * num_chunks + part, tl.sum(tl.exp(raw - _finite(raw_peak)), 0))
    was_seen = tl.load(seen + tl.load(seen_rows + row) * vocab_size + tokens, mask=is_token, other=0) != 0
    presence, repetition = tl.load(choices + 4).to(tl.float32), tl.load(choices + 5).to(tl.float32)
    repeated = tl.where(raw > 0, tl.div_rn(raw, repetition + tl.zeros_like(raw)), raw * repetition) - presence
    values = tl.where(was_seen, repeated, raw)
    tl.store(penalised + row * num_chunks * chunk + tokens, values)
    peak = tl.max(values, 0)
    tl.store(peaks + row * num_chunks + part, peak)
    tl.store(peak_ids + row * num_chunks + part, tl.min(tl.where(values == peak, tokens, 0x7FFFFFFF), 0))
    groups = row * num_chunks * (chunk // group) + part * (chunk // group) + tl.arange(0, chunk // group)
    tl.store(maxima + groups, tl.max(tl.reshape(values, (chunk // group, group)), 1))
    temperature = tl.load(choices)
    # The mass of the whole row is asked for by top-p alone, and by no top-k below it.
    if (temperature > 0) & (tl.load(choices + 2) < 1.0) & (_num_best(choices, vocab_size) == vocab_size):
        mass = tl.sum(tl.exp(_scaled(values, _finite(peak), temperature)), 0)
        tl.store(masses + row * num_chunks + part, mass)


@row_kernel
def _cut_kernel(
    penalised, maxima, peaks, masses, choices, candidates, cuts, num_chunks, vocab_size,
    chunk: tl.constexpr, group: tl.constexpr, num_choices: tl.constexpr, most_groups: tl.constexpr,
    chunk_tile: tl.constexpr, group_tile: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    choices += row * num_choices
    temperature, top_p = tl.load(choices), tl.load(choices + 2)
    num_best = _num_best(choices, vocab_size)
    if (temperature == 0) | ((num_best == vocab_size) & (top_p == 1.0)):
        tl.store(cuts + row, float("-inf"))
        return
    penalised += row * num_chunks * chunk
    chunks = tl.arange(0, chunk_tile)
    chunk_peaks = tl.load(peaks + row * num_chunks + chunks, mask=chunks < num_chunks, other=float("-inf"))
    peak = _finite(tl.max(chunk_peaks, 0))
    keys, weights, num_sure = _best_tokens(
        penalised, maxima + row * num_chunks * (chunk // group), candidates + row * most_groups,
        num_chunks * (chunk // group), peak, temperature, vocab_size, group, most_groups, group_tile,
    )  # fmt: skip
    num_ranked = tl.minimum(num_best, num_sure)
    last = kth_largest(keys, num_ranked)
    above = tl.sum(tl.where(keys > last, weights, 0.0), 0)
    num_equal = num_ranked - tl.sum((keys > last).to(tl.int32), 0)
    total = above + num_equal * tl.exp(_scaled(value_of_ordered_bits(last), peak, temperature))
    is_ranked = num_ranked == num_best
    if (top_p < 1.0) & (num_ranked < num_best) & (num_best == vocab_size):
        shrink = tl.exp(_scaled(_finite(chunk_peaks), peak, temperature))
        part = tl.load(masses + row * num_chunks + chunks, mask=chunks < num_chunks, other=0.0)
        total = tl.sum(tl.where(chunks < num_chunks, part * shrink, 0.0), 0)
        is_ranked = above >= top_p * total
    if is_ranked:
        cut = last
        if top_p < 1.0:
            cut = _least_with_mass(keys, weights, top_p * total)
        tl.store(cuts + row, value_of_ordered_bits(cut))
    else:
        cut = _cut_of_whole_row(penalised, num_best, top_p, total, peak, temperature, vocab_size, most_groups * group)
        tl.store(cuts + row, value_of_ordered_bits(cut))


@triton.jit
def _best_tokens(
    penalised, maxima, candidates, num_groups, peak, temperature, vocab_size,
    group: tl.constexpr, most_groups: tl.constexpr, group_tile: tl.constexpr,
):  # fmt: skip
    """Ordered bits and fp64 weights [most_groups * group] of the best groups' tokens, and how many best are sure."""
    groups = tl.arange(0, group_tile)
    best = ordered_bits(tl.load(maxima + groups, mask=groups < num_groups, other=float("-inf")))
    num_chosen = tl.minimum(num_groups, most_groups)
    is_chosen = is_among_largest(tl.where(groups < num_groups, best, LOWEST), num_chosen)
    tl.store(candidates + tl.cumsum(is_chosen.to(tl.int32), 0) - 1, groups, mask=is_chosen)
    tl.debug_barrier()
    members = tl.arange(0, most_groups * group)
    is_member = members // group < num_chosen
    tokens = tl.load(candidates + members // group, mask=is_member, other=0) * group + members % group
    values = tl.load(penalised + tokens, mask=is_member, other=float("-inf"))
    weights = tl.where(is_member, tl.exp(_scaled(values, peak, temperature)), 0.0)
    num_sure = tl.where(num_groups <= most_groups, vocab_size, tl.minimum(most_groups, vocab_size))
    return tl.where(is_member, ordered_bits(values), LOWEST), weights, num_sure


@triton.jit
def _least_with_mass(keys, weights, mass):
    """The greatest key that leaves at least `mass` among the keys from it upwards."""
    found = tl.zeros((), tl.int32)
    bit = tl.full((), LOWEST, tl.int32)
    for _ in range(32):
        higher = found | bit
        found = tl.where(tl.sum(tl.where(keys >= (higher ^ LOWEST), weights, 0.0), 0) >= mass, higher, found)
        bit = (bit >> 1) & 0x7FFFFFFF
    return found ^ LOWEST


@triton.jit
def _count_and_mass(penalised, least, peak, temperature, vocab_size, tile: tl.constexpr):
    """Of the row's tokens from ordered bits `least` upwards: their number, and their weight with fp32 terms."""
    count, mass = tl.zeros((), tl.int32), tl.zeros((), tl.float64)
    for first in range(0, vocab_size, tile):
        tokens = first + tl.arange(0, tile)
        values = tl.load(penalised + tokens, mask=tokens < vocab_size, other=float("-inf"))
        is_counted = (ordered_bits(values) >= least) & (tokens < vocab_size)
        weights = tl.exp(_scaled(values, peak, temperature).to(tl.float32)).to(tl.float64)
        count += tl.sum(is_counted.to(tl.int32), 0)
        mass += tl.sum(tl.where(is_counted, weights, 0.0), 0)
    return count, mass


@triton.jit
def _cut_of_whole_row(penalised, num_best, top_p, total, peak, temperature, vocab_size, tile: tl.constexpr):
    """Ordered bits of the least logit that survives, however many do. `total` is the mass of a whole row."""
    last = tl.full((), LOWEST, tl.int32)
    if num_best < vocab_size:
        found = tl.zeros((), tl.int32)
        bit = tl.full((), LOWEST, tl.int32)
        for _ in range(32):
            higher = found | bit
            count, _mass = _count_and_mass(penalised, higher ^ LOWEST, peak, temperature, vocab_size, tile)
            found = tl.where(count >= num_best, higher, found)
            bit = (bit >> 1) & 0x7FFFFFFF
        last = found ^ LOWEST
        # The k-th may have equals beyond the k: only so many of them count.
        count, mass = _count_and_mass(penalised, last, peak, temperature, vocab_size, tile)
        total = mass - (count - num_best) * tl.exp(_scaled(value_of_ordered_bits(last), peak, temperature))
    if top_p < 1.0:
        found = tl.zeros((), tl.int32)
        bit = tl.full((), LOWEST, tl.int32)
        for _ in range(32):
            higher = found | bit
            _count, mass = _count_and_mass(penalised, higher ^ LOWEST, peak, temperature, vocab_size, tile)
            found = tl.where(mass >= top_p * total, higher, found)
            bit = (bit >> 1) & 0x7FFFFFFF
        last = tl.maximum(last, found ^ LOWEST)
    return last


@row_kernel
def _draw_kernel(
    logits, logits_stride, choices, seen, seen_rows, uniforms, penalised, peaks, peak_ids, raw_peaks, raw_sums, cuts,
    masses, ids, logprobs, counters, num_chunks, vocab_size,
    chunk: tl.constexpr, chunk_tile: tl.constexpr, num_choices: tl.constexpr,
):  # fmt: skip
    row, part = tl.program_id(0), tl.program_id(1)
    temperature, log_min_p = tl.load(choices + row * num_choices), tl.load(choices + row * num_choices + 3)
    chunks, stats = tl.arange(0, chunk_tile), row * num_chunks
    is_chunk = chunks < num_chunks
    chunk_peaks = tl.load(peaks + stats + chunks, mask=is_chunk, other=float("-inf"))
    peak = tl.max(chunk_peaks, 0)
    cut = tl.load(cuts + row)
    penalised += row * num_chunks * chunk
    places = tl.arange(0, chunk)
    if temperature == 0:
        if part > 0:
            return
        firsts = tl.load(peak_ids + stats + chunks, mask=is_chunk, other=0x7FFFFFFF)
        token = tl.min(tl.where(chunk_peaks == peak, firsts, 0x7FFFFFFF), 0)
    else:
        mass = tl.zeros((), tl.float64)
        if tl.load(peaks + stats + part) >= cut:
            mass = tl.sum(_weights(penalised + part * chunk + places, cut, _finite(peak), temperature, log_min_p), 0)
        tl.store(masses + stats + part, mass)
        if not is_last_arrival(counters + row, num_chunks):
            return
        kept = tl.load(masses + stats + chunks, mask=is_chunk, other=0.0, cache_modifier=".cg")
        summed = tl.cumsum(kept, 0)
        goal = tl.load(uniforms + row) * tl.sum(kept, 0)
        # Round-off must not lead to a token without weight: the first past the goal, else the last that has any.
        drawn = _first_past(summed, kept, goal, chunks, chunk_tile)
        before = tl.sum(tl.where(chunks < drawn, kept, 0.0), 0)
        weights = _weights(penalised + drawn * chunk + places, cut, _finite(peak), temperature, log_min_p)
        place = _first_past(before + tl.cumsum(weights, 0), weights, goal, places, chunk)
        token = drawn * chunk + place
    token = tl.minimum(token, vocab_size - 1)
    raw = tl.load(raw_peaks + stats + chunks, mask=is_chunk, other=float("-inf"))
    raw_peak = _finite(tl.max(raw, 0))
    sums = tl.load(raw_sums + stats + chunks, mask=is_chunk, other=0.0)
    log_total = raw_peak + tl.log(tl.sum(sums * tl.exp(_finite(raw) - raw_peak), 0))
    tl.store(ids + row, token.to(tl.int64))
    tl.store(logprobs + row, tl.load(logits + row * logits_stride + token) - log_total)
    tl.store(seen + tl.load(seen_rows + row) * vocab_size + token, 1)


@triton.jit
def _weights(places, cut, peak, temperature, log_min_p):
    """fp64 weight of each token of a chunk, zero for those that were cut."""
    values = tl.load(places)
    scaled = _scaled(values, peak, temperature)
    return tl.where((values >= cut) & (scaled >= log_min_p), tl.exp(scaled), 0.0)


@triton.jit
def _first_past(summed, weights, goal, places, size: tl.constexpr):
    first = tl.min(tl.where((summed > goal) & (weights > 0), places, size), 0)
    last = tl.max(tl.where(weights > 0, places, 0), 0)
    return tl.where(first < size, first, last)
