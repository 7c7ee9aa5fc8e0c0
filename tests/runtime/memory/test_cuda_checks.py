"""What keeps a GPU from being used is said with how to get it, and nothing is said where there is none."""

from dataclasses import replace

import pytest

from runtime.memory.cuda_checks import CudaFacts, examine_cuda

SOUND = CudaFacts(True, (13, 0), "/usr/bin/gcc", True, None, False)


def test_a_sound_machine_has_no_problem() -> None:
    assert SOUND.problems(is_wanted=True) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"driver_cuda": None}, ["driver", "nvidia-smi"]),
        ({"driver_cuda": (12, 4)}, ["12.4", "12.8", "update"]),
        ({"compiler": None}, ["C compiler", "apt install gcc"]),
        ({"has_python_headers": False}, ["headers", "-dev"]),
    ],
)
def test_each_missing_thing_is_one_line_with_the_next_step(changes: dict[str, object], words: list[str]) -> None:
    (problem,) = replace(SOUND, **changes).problems(is_wanted=False)
    assert all(word in problem for word in words)
    assert "\n" not in problem


def test_wsl_is_no_problem_but_has_a_limit() -> None:
    facts = replace(SOUND, is_wsl=True)
    assert facts.problems(is_wanted=True) == []
    assert ".wslconfig" in facts.pinned_memory


def test_without_a_gpu_only_who_asks_for_one_is_told() -> None:
    facts = CudaFacts(False, None, None, False, None, False)
    assert facts.problems(is_wanted=False) == []
    (problem,) = facts.problems(is_wanted=True)
    assert "--device cpu" in problem


def test_this_machine_can_be_examined() -> None:
    facts = examine_cuda()
    assert set(facts.to_json()) == {
        "gpu", "driver_cuda", "c_compiler", "python_headers", "pinned_memory", "locked_memory_limit"
    }  # fmt: skip
