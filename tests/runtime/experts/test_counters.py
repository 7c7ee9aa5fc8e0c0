"""Hit rate over the last 64 tokens."""

from runtime.experts.counters import WINDOW_TOKENS, SlotCounters


def test_window_forgets_and_totals_do_not() -> None:
    counters = SlotCounters()
    assert counters.hit_rate is None
    for step in range(WINDOW_TOKENS + 36):
        counters.begin_step()
        counters.note(3, 3 if step < 36 else 0, bytes_per_miss=10)
        counters.note(1, 0)
    assert counters.hit_rate == 1.0
    assert (counters.num_routed, counters.num_missed, counters.num_missed_bytes) == (400, 108, 1080)


def test_the_step_in_progress_counts() -> None:
    counters = SlotCounters()
    counters.begin_step()
    counters.note(4, 1)
    assert counters.hit_rate == 0.75
