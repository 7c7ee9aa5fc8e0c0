"""Rates count busy time inside the window, and request timing excludes the first token from decode."""

import pytest

from runtime.telemetry.rates import RateWindow
from runtime.telemetry.stopwatch import RequestTiming


def test_rate_of_the_last_seconds_only() -> None:
    window = RateWindow(window_s=1.0)
    assert window.tokens_per_second is None
    for step in range(10):
        window.add(step * 0.1, 0.1, 1)
    assert window.tokens_per_second == pytest.approx(10)
    for step in range(40):
        window.add(1 + step * 0.05, 0.05, 1)
    assert window.tokens_per_second == pytest.approx(20)


def test_a_pause_does_not_dilute() -> None:
    window = RateWindow(window_s=1.0)
    window.add(0.0, 0.1, 1)
    window.add(100.0, 0.1, 2)
    assert window.tokens_per_second == pytest.approx(20)


def test_request_timing() -> None:
    timing = RequestTiming(accepted_s=10.0)
    assert (timing.ttft_s, timing.prefill_tok_s, timing.decode_tok_s) == (0.0, 0.0, 0.0)
    timing.prefilled(started_s=11.0, num_tokens=60)
    timing.prefilled(started_s=11.5, num_tokens=40)
    for now_s in (12.0, 12.5, 13.0):
        timing.generated(now_s)
    assert timing.ttft_s == pytest.approx(2.0)
    assert timing.prefill_tok_s == pytest.approx(100.0)
    assert timing.decode_tok_s == pytest.approx(2.0)
