"""Sizes, counts, durations and the engine's figures in words, the same in every front end."""

from app.sanitize import clean_line
from runtime.protocol import EngineStats


def size_text(num_bytes: float) -> str:
    """Bytes for a person: 812 MiB, 3.1 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(num_bytes) < 1024 or unit == "TiB":
            return (
                f"{num_bytes:.0f} {unit}" if unit in ("B", "KiB") or abs(num_bytes) >= 10 else f"{num_bytes:.1f} {unit}"
            )
        num_bytes /= 1024
    raise AssertionError("unreachable")


def count_text(count: int) -> str:
    """A count that fits a status bar: 950, 1.2k, 262k, 1.0M."""
    if count < 1000:
        return str(count)
    if count < 999_950:
        return f"{count / 1000:.1f}k" if count < 9_950 else f"{count / 1000:.0f}k"
    return f"{count / 1_000_000:.1f}M"


def tok_s_text(tok_s: float) -> str:
    """A predicted speed for a person: 0.4 tok/s, 8.3 tok/s, 43 tok/s."""
    return f"{tok_s:.1f} tok/s" if tok_s < 10 else f"{tok_s:.0f} tok/s"


def seconds_text(seconds: float) -> str:
    """A duration for a person: 0.8 s, 12 s, 2 min 5 s."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def explain(stats: EngineStats) -> list[str]:
    """Every figure in words, for the tooltip and the help screen."""
    limit = "no limit" if stats.vram_limit_bytes is None else f"of {size_text(stats.vram_limit_bytes)}"
    overlap = f"runs ({stats.overlap_level})" if stats.overlap_level != "off" else "does not run"
    if stats.overlap_reason and stats.overlap_level == "off":
        overlap += f": {clean_line(stats.overlap_reason)}"
    hit = "not measured yet" if stats.slot_hit_rate is None else f"{stats.slot_hit_rate:.1%} over the last 64 tokens"
    memory = "VRAM" if stats.device != "cpu" else "Engine memory that counts against --vram"
    prefill = "–" if stats.prefill_tok_s is None else f"{stats.prefill_tok_s:.0f}"
    decode = "–" if stats.decode_tok_s is None else f"{stats.decode_tok_s:.1f}"
    return [
        f"Speed: {decode} tok/s decode, {prefill} tok/s prefill, on {stats.device}",
        f"Slot hit rate: {hit}",
        f"Slots: {stats.num_slots_used:,} of {stats.num_slots:,} used; {stats.num_experts:,} experts; "
        f"policy {stats.policy}",
        *_tiers(stats),
        f"{memory}: {size_text(stats.vram_used_bytes)} used, {limit}",
        f"Context: {stats.context_used_tokens:,} of {stats.context_limit_tokens:,} tokens",
        f"Overlap: {overlap}",
        f"Engine process: {size_text(stats.engine_rss_bytes)} of memory{_ram_limit(stats)}",
    ]


def _ram_limit(stats: EngineStats) -> str:
    return "" if stats.ram_limit_bytes is None else f", planned for at most {size_text(stats.ram_limit_bytes)}"


def _tiers(stats: EngineStats) -> list[str]:
    """Where experts without a slot are, for a model of which memory does not hold all."""
    if stats.num_cached_records is None:
        return []
    text = f"Memory beside the slots: {stats.num_cached_records} experts, the others are on the disk"
    if stats.ram_hit_rate is not None and stats.disk_rate is not None:
        text += f"; {stats.ram_hit_rate:.1%} found in memory, {stats.disk_rate:.1%} read from the disk"
    return [f"{text}; {size_text(stats.num_disk_bytes)} read so far"]
