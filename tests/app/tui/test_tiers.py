"""The status bar and the figures in words: what a narrow bar leaves out, and where experts are found."""

from textual.app import App, ComposeResult

from app.figures import explain
from app.tui.widgets.status_bar import StatusBar
from runtime.protocol import EngineStats

PINNED = EngineStats(slot_hit_rate=0.7, disk_rate=0.0, num_experts=384)
MAPPED = EngineStats(slot_hit_rate=0.7, disk_rate=0.1, num_experts=384, num_cached_records=40, num_disk_bytes=3 << 20)


class BarApp(App[None]):
    def compose(self) -> ComposeResult:
        yield StatusBar()


async def test_the_bar_shows_three_tiers_of_a_model_that_has_them() -> None:
    app = BarApp()
    async with app.run_test(size=(160, 4)):
        bar = app.query_one(StatusBar)
        shown = []
        for stats in (PINNED, MAPPED):
            bar.note_stats(stats, is_decoding=True)
            shown.append(str(bar.render()))
    assert "hit 70% │" in shown[0]
    assert "hit 70% ram 20% disk 10% │" in shown[1]


async def test_a_narrow_bar_has_a_shorter_sparkline_and_one_figure_more() -> None:
    stats = EngineStats(decode_tok_s=11.9, slot_hit_rate=0.7, context_used_tokens=3700, context_limit_tokens=8192)
    shown = []
    for width in (160, 80):
        app = BarApp()
        async with app.run_test(size=(width, 4)) as pilot:
            bar = app.query_one(StatusBar)
            bar.model = "demo-model"
            for _ in range(12):
                bar.note_stats(stats, is_decoding=True)
            await pilot.pause()
            shown.append(str(bar.render()))
    assert [row.count("▇") for row in shown] == [12, 4]
    assert all("ctx ━━━─── 3.7k/8.2k" in row for row in shown)


def test_the_figures_in_words() -> None:
    line = (
        "Memory beside the slots: 40 experts, the others are on the disk; 20.0% found in memory, 10.0% read from the "
    )
    assert f"{line}disk; 3.0 MiB read so far" in explain(MAPPED)
    assert not any("disk" in line for line in explain(PINNED))
    before_the_first = EngineStats(num_cached_records=40)
    assert any(line.endswith("on the disk; 0 B read so far") for line in explain(before_the_first))
    limited = EngineStats(engine_rss_bytes=3 << 30, ram_limit_bytes=4 << 30)
    assert "Engine process: 3.0 GiB of memory, planned for at most 4.0 GiB" in explain(limited)
    assert "Engine process: 0 B of memory" in explain(PINNED)
