"""Rates as a person sees them: a stream that is held up is slower, a prompt is as fast as its chunks."""

import pytest

from runtime.telemetry.meter import Meter


def test_decode_and_prefill_are_apart() -> None:
    meter = Meter()
    meter.add(0.5, 0.5, 100, is_decode=False)
    meter.add(0.6, 0.1, 2, is_decode=True)
    assert (meter.prefill_tok_s, meter.decode_tok_s) == (200.0, pytest.approx(20.0))


def test_a_chunk_that_holds_up_a_stream_slows_the_stream() -> None:
    meter = Meter()
    meter.add(0.1, 0.1, 1, is_decode=True)
    meter.add(0.2, 0.1, 32, is_decode=False, holds_up_stream=True)
    assert meter.decode_tok_s == pytest.approx(5.0)
    assert meter.prefill_tok_s == pytest.approx(320.0)


def test_tokens_of_side_calls_do_not_count_as_the_streams_they_hold_up() -> None:
    meter = Meter()
    meter.add(0.1, 0.1, 1, is_decode=True)
    meter.add(0.2, 0.1, 3, is_decode=True, holds_up_stream=True)
    assert meter.decode_tok_s == pytest.approx(5.0)


def test_a_step_nobody_wants_any_more_counts_nowhere() -> None:
    meter = Meter()
    meter.add(0.1, 0.1, 0, is_decode=True)
    assert meter.decode_tok_s is None
