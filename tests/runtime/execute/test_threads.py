"""Small models decode on one core and leave the others to the app; the user's choice holds for every step."""

from dataclasses import replace
from pathlib import Path

from runtime.checkpoint.facts import read_facts
from runtime.execute.threads import ThreadPlan


def test_small_layers_decode_on_one_core_and_prefill_on_all(demo_folder: Path) -> None:
    threads = ThreadPlan.build(read_facts(demo_folder), num_cores=8, num_threads=None)
    assert (threads.of_step(1), threads.of_step(256)) == (1, 8)


def test_large_layers_decode_on_all_cores(demo_folder: Path) -> None:
    spec = read_facts(demo_folder)
    large = replace(spec, weights=replace(spec.weights, dense_params=spec.num_layers * (64 << 20)))
    assert ThreadPlan.build(large, num_cores=8, num_threads=None).of_step(1) == 8


def test_a_given_number_is_used_for_every_step(demo_folder: Path) -> None:
    threads = ThreadPlan.build(read_facts(demo_folder), num_cores=8, num_threads=3)
    assert (threads.of_step(1), threads.of_step(256)) == (3, 3)
