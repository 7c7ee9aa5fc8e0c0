"""Bytes and time left while a model loads."""

from app.chat.engine_start import LoadEstimate
from runtime.protocol import LoadProgressed

GB = 10**9


def test_time_left_follows_the_speed_of_the_phase() -> None:
    times = iter([0.0, 0.5, 2.0, 10.0, 11.0, 12.0])
    estimate = LoadEstimate(lambda: next(times))
    assert estimate.describe(LoadProgressed("dense", 0, 4 * GB)) == "0.0 of 4.0 GB"
    assert estimate.describe(LoadProgressed("dense", GB // 2, 4 * GB)) == "0.5 of 4.0 GB"
    assert estimate.describe(LoadProgressed("dense", GB, 4 * GB)) == "1.0 of 4.0 GB, 6 s left"
    assert estimate.describe(LoadProgressed("experts", 0, 200 * GB)) == "0.0 of 200.0 GB"
    assert estimate.describe(LoadProgressed("experts", 0, 200 * GB)) == "0.0 of 200.0 GB"
    assert estimate.describe(LoadProgressed("experts", 2 * GB, 200 * GB)) == "2.0 of 200.0 GB, 3 min 18 s left"


def test_small_phases_say_nothing() -> None:
    assert LoadEstimate().describe(LoadProgressed("slots", 5, 10)) == ""
