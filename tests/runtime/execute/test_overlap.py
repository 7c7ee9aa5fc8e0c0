"""The overlap path declines, in words, wherever it does not apply."""

import pytest

from runtime.execute.overlap import applies


@pytest.mark.parametrize(
    ("case", "word"),
    [
        ((True, "cpu", True, 0, False), "CUDA"),
        ((True, "cuda", False, 1, True), "prefill"),
        ((True, "cuda", True, 2, True), "2"),
        ((True, "cuda", True, 1, False), "slots"),
        ((False, "cuda", True, 1, True), "switched off"),
    ],
)
def test_declines_with_a_reason(case: tuple[bool, str, bool, int, bool], word: str) -> None:
    decision = applies(*case)
    assert decision.level == "off"
    assert word in decision.reason


def test_cpu_says_what_runs_instead() -> None:
    reason = applies(True, "cpu", True, 0, False).reason
    assert reason == "the overlap path needs a CUDA GPU; decode runs serially on the CPU"


def test_runs_on_one_gpu_that_holds_the_experts() -> None:
    decision = applies(True, "cuda", True, 1, True)
    assert (decision.level, decision.reason) == ("shared", "")
