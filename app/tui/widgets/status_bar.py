"""One row of figures: model, speed, slots, memory, context, overlap. Drops the least important ones when narrow."""

from collections import deque
from dataclasses import dataclass

from textual.app import RenderResult
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from app.figures import count_text, explain, size_text
from app.model_jobs import JobState
from app.tui.display import MUTED, shown
from runtime.protocol import EngineStats

SPARK_MARKS = "▁▂▃▄▅▆▇"
NUM_SPARKS = 12
FEW_SPARKS = 4
"""Where the row is narrow: a figure more says more."""
GAUGE_CELLS = 6
LOAD_WORDS = {
    "opening": "opening the checkpoint",
    "dense": "loading the dense weights",
    "experts": "filling the expert store",
    "slots": "filling the slots",
    "warmup": "warming up",
}


@dataclass(frozen=True)
class Segment:
    """A figure; those of low `rank` stay longest when the row is narrow."""

    rank: int
    content: Content


class StatusBar(Widget):
    """Shows the last figures it was given; `load_fraction` is 0..1 while the engine starts, else None."""

    DEFAULT_CSS = """
    StatusBar { height: 1; width: 1fr; padding: 0 1; background: $panel; color: $foreground; }
    """

    stats: reactive[EngineStats | None] = reactive(None)
    model: reactive[str] = reactive("")
    activity: reactive[str] = reactive("")
    num_side_calls: reactive[int] = reactive(0)
    downloads: reactive[tuple[JobState, ...]] = reactive(())
    load_phase: reactive[str] = reactive("")
    load_fraction: reactive[float | None] = reactive(None)

    def __init__(self) -> None:
        super().__init__(id="status")
        self._rates: deque[float] = deque(maxlen=NUM_SPARKS)

    def note_stats(self, stats: EngineStats, *, is_decoding: bool) -> None:
        """Show these figures; while decoding they also lengthen the sparkline."""
        if is_decoding and stats.decode_tok_s is not None:
            self._rates.append(stats.decode_tok_s)
        self.stats = stats
        self.tooltip = Content("\n".join(explain(stats)))

    def clear_rates(self) -> None:
        """Another model: its speed has nothing to do with the last one's."""
        self._rates.clear()

    def render(self) -> RenderResult:
        room = self.content_size.width
        separator = Content.styled(" │ ", "$foreground 25%")
        segments = self._segments(NUM_SPARKS)
        if _width(segments, separator) > room:
            segments = self._segments(FEW_SPARKS)
        while len(segments) > 1 and _width(segments, separator) > room:
            segments.remove(max(segments, key=lambda segment: segment.rank))
        # Not `separator.join`: it counts one separator too many, and the row would end too early.
        parts = [part for segment in segments for part in (separator, segment.content)][1:]
        return Content.assemble(*parts).truncate(max(room, 1), ellipsis=True)

    def _segments(self, num_sparks: int) -> list[Segment]:
        segments = [Segment(1, shown(self.model or "no model", "bold"))]
        if self.downloads:
            segments.append(Segment(2, _downloads(self.downloads)))
        if self.load_fraction is not None:
            bar = gauge(self.load_fraction, 10)
            words = LOAD_WORDS.get(self.load_phase, "starting the engine")
            segments.append(Segment(0, Content.assemble((bar, "$text-primary"), f" {self.load_fraction:.0%} {words}")))
            return segments
        stats = self.stats
        if stats is None:
            segments.append(Segment(0, Content.styled(self.activity or "not loaded", MUTED)))
            return segments
        if self.activity:
            segments.append(Segment(0, Content.styled(self.activity, "$text-accent")))
        segments.append(Segment(0, self._speed(stats, num_sparks)))
        if self.num_side_calls:
            segments.append(
                Segment(3, Content.assemble(("beside ", MUTED), (str(self.num_side_calls), "$text-accent")))
            )
        segments.append(Segment(2, _hit_rate(stats)))
        segments.append(Segment(3, _headroom(stats)))
        segments.append(Segment(5, Content.assemble(("slots ", MUTED), f"{stats.num_slots_used}/{stats.num_slots}")))
        segments.append(Segment(4, _context(stats)))
        segments.append(Segment(6, _overlap(stats)))
        segments.append(Segment(7, Content.styled(stats.policy, MUTED)))
        return segments

    def _speed(self, stats: EngineStats, num_sparks: int) -> Content:
        if stats.decode_tok_s is None:
            return Content.styled("– tok/s", MUTED)
        sparks = sparkline(list(self._rates)[-num_sparks:])
        return Content.assemble((sparks, "$text-primary"), f" {stats.decode_tok_s:.1f} tok/s")


def sparkline(values: list[float]) -> str:
    """The values as bars between zero and their largest."""
    top = max(values, default=0.0)
    if top <= 0:
        return ""
    return "".join(SPARK_MARKS[min(len(SPARK_MARKS) - 1, int(value / top * len(SPARK_MARKS)))] for value in values)


def gauge(fraction: float, cells: int) -> str:
    """A bar of `cells` characters, filled from the left; something used never looks empty."""
    filled = round(min(max(fraction, 0.0), 1.0) * cells)
    if fraction > 0:
        filled = max(filled, 1)
    return "━" * filled + "─" * (cells - filled)


def _downloads(jobs: tuple[JobState, ...]) -> Content:
    done = sum(job.done_bytes for job in jobs)
    total = sum(job.total_bytes for job in jobs)
    percent = f"{done / total:.0%}" if total else "…"
    return Content.assemble(("↓ ", MUTED), (percent, "$text-accent"))


def _hit_rate(stats: EngineStats) -> Content:
    if stats.slot_hit_rate is None:
        return Content.styled("hit –", MUTED)
    style = "$text-success" if stats.slot_hit_rate >= 0.8 else "$text-warning"
    hit = Content.assemble(("hit ", MUTED), (f"{stats.slot_hit_rate:.0%}", style))
    if stats.num_cached_records is None or stats.ram_hit_rate is None:
        return hit
    return Content.assemble(
        hit, (" ram ", MUTED), f"{stats.ram_hit_rate:.0%}", (" disk ", MUTED), f"{stats.disk_rate:.0%}"
    )


def _headroom(stats: EngineStats) -> Content:
    if stats.vram_headroom_bytes is None:
        return Content.assemble(("VRAM ", MUTED), "no limit")
    style = "$text-error" if stats.vram_headroom_bytes < 0 else ""
    return Content.assemble(("VRAM ", MUTED), (size_text(stats.vram_headroom_bytes), style), " free")


def _context(stats: EngineStats) -> Content:
    limit = stats.context_limit_tokens
    fraction = stats.context_used_tokens / limit if limit else 0.0
    style = "$text-error" if fraction >= 0.95 else "$text-warning" if fraction >= 0.8 else "$text-primary"
    text = f" {count_text(stats.context_used_tokens)}/{count_text(limit)}"
    return Content.assemble(("ctx ", MUTED), (gauge(fraction, GAUGE_CELLS), style), text)


def _overlap(stats: EngineStats) -> Content:
    if stats.overlap_level != "off":
        return Content.assemble(("overlap ", MUTED), (stats.overlap_level, "$text-success"))
    return Content.styled("overlap off" if not stats.overlap_requested else "overlap n/a", MUTED)


def _width(segments: list[Segment], separator: Content) -> int:
    return sum(segment.content.cell_length for segment in segments) + separator.cell_length * (len(segments) - 1)
