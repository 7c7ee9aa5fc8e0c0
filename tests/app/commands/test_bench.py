"""`ask --trace` and `bench policy` as a user runs them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.commands import bench
from app.locations import DEMO_MODEL, asset_path
from runtime.experts.replay import REPLAY_POLICIES
from runtime.experts.trace import TraceFacts
from scripts.make_checkpoint import make_checkpoint
from tests.support.command_line import REPO, run_hotslot
from tests.support.disk_reads import counts_disk_reads
from tests.support.random_traces import record

DEMO = asset_path(DEMO_MODEL)
needs_demo = pytest.mark.skipif(not (DEMO / "config.json").is_file(), reason="the demo model is not in this checkout")
FACTS = TraceFacts("tiny\x1b[31m", num_layers=4, num_experts=16, num_choices=2)
QUESTION = ("--seed", "1", "--max-tokens", "24", "What should I have for breakfast?")

Bench = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_bench(capsys: pytest.CaptureFixture[str]) -> Bench:
    """Run `hotslot bench policy` in this process: (status, stdout, stderr)."""

    def run(*arguments: Any) -> tuple[int, str, str]:
        status = main(["bench", "policy", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_policies_of_the_command_are_those_of_the_replay() -> None:
    assert set(bench.POLICY_NAMES) == set(REPLAY_POLICIES)


def test_the_table_has_a_row_per_slot_count_and_a_column_per_policy(run_bench: Bench, tmp_path: Path) -> None:
    record(tmp_path / "a.trace", FACTS, 1, 60, 0)
    status, out, err = run_bench(tmp_path / "a.trace")
    lines = [line.split() for line in out.splitlines()]
    assert status == 0
    assert lines[0] == ["slots", "of", "all", "lru", "rule", "belady"]
    assert [line[:2] for line in lines[1:]] == [
        ["8", "12.5%"], ["16", "25.0%"], ["24", "37.5%"], ["32", "50.0%"], ["48", "75.0%"]
    ]  # fmt: skip
    rates = [[float(cell[:-1]) for cell in line[2:]] for line in lines[1:]]
    assert all(bound >= max(lru, rule) for lru, rule, bound in rates)
    assert [bound for *_, bound in rates] == sorted(bound for *_, bound in rates)
    assert "\x1b" not in out + err
    assert "60 decode steps" in err


def test_json_counts_every_trace_from_empty_slots_or_all_in_one_engine(run_bench: Bench, tmp_path: Path) -> None:
    traces = [tmp_path / f"{seed}.trace" for seed in (1, 2)]
    for seed, path in enumerate(traces):
        record(path, FACTS, 2, 40, seed, has_prefill=False)

    def missed(*arguments: Any) -> list[int]:
        status, out, err = run_bench(*arguments, "--slots", "64, 20", "--policy", "rule,lru", "--json")
        assert (status, err) == (0, "")
        report = json.loads(out)
        assert [(result["slots"], result["policy"]) for result in report["results"]] == [
            (64, "rule"), (64, "lru"), (20, "rule"), (20, "lru")
        ]  # fmt: skip
        assert all(row["hit_rate"] == 1 - row["missed"] / row["routed"] for row in report["results"])
        assert report["experts"] == 64
        assert [trace["steps"] for trace in report["traces"]] == [40] * (len(arguments) - ("--joined" in arguments))
        return [result["missed"] for result in report["results"]]

    apart = missed(*traces)
    assert apart == [sum(pair) for pair in zip(*(missed(path) for path in traces), strict=True)]
    joined = missed(*traces, "--joined")
    # With a slot for each expert, an engine that goes on misses none again that the first trace used.
    assert joined[0] == joined[1] < apart[0] == apart[1]


def test_a_trace_of_nothing_has_no_rate(run_bench: Bench, tmp_path: Path) -> None:
    record(tmp_path / "a.trace", FACTS, 1, 0, 0)
    status, out, _ = run_bench(tmp_path / "a.trace", "--slots", "4")
    assert (status, out.split()[-3:]) == (0, ["-", "-", "-"])
    assert json.loads(run_bench(tmp_path / "a.trace", "--json")[1])["results"][0]["hit_rate"] is None


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 2, "TRACE"),
        (("a.trace", "--slots", "0"), 2, "whole numbers like 96,192, not '0'"),
        (("a.trace", "--slots", "8,,9"), 2, "not ''"),
        (("a.trace", "--policy", "lru,fifo\x1b[31m"), 2, "lru, rule, belady, not 'fifo[31m'"),
        (("a.trace", "--slots", "1"), 2, "at least 2; set --slots 2 or more"),
        (("a.trace", "other.trace"), 2, "not of the same model"),
        (("a.trace", "no\x1b[31m.trace"), 1, "There is no file no[31m.trace; check the path"),
        (("text",), 1, "text is not a routing trace"),
    ],
)
def test_bad_use_is_one_line(
    run_bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    status: int,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    record(Path("a.trace"), FACTS, 1, 5, 0)
    record(Path("other.trace"), TraceFacts("other", 4, 16, 2), 1, 5, 0)
    Path("text").write_text("hello")
    ended, out, err = run_bench(*arguments)
    [line] = err.splitlines()
    assert (ended, out) == (status, "")
    assert line.startswith("hotslot: ")
    assert words in line
    assert "\x1b" not in line


def test_a_bench_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 2
    assert "BENCH" in capsys.readouterr().err


def test_replaying_loads_no_torch(tmp_path: Path) -> None:
    record(tmp_path / "a.trace", FACTS, 1, 5, 0)
    code = "import sys; from app.cli import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    command = [sys.executable, "-c", code, "bench", "policy", str(tmp_path / "a.trace")]
    ended = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@needs_demo
class TestAsk:
    def test_its_trace_gives_its_own_hit_rate(self, tmp_path: Path) -> None:
        """The first 64 tokens: the answer's own figure is over all of them."""
        path = tmp_path / "a.trace"
        plain = json.loads(run_hotslot("ask", "--json", "--slots", "96", *QUESTION).out)
        ended = run_hotslot("ask", "--json", "--slots", "96", "--trace", str(path), *QUESTION)
        assert (ended.status, ended.err) == (0, "")
        answer = json.loads(ended.out)
        assert answer["text"] == plain["text"]
        replayed = run_hotslot("bench", "policy", str(path), "--slots", "96", "--policy", "rule", "--json")
        report = json.loads(replayed.out)
        assert report["results"][0]["hit_rate"] == answer["stats"]["slot_hit_rate"]
        assert report["traces"][0]["steps"] == answer["usage"]["completion_tokens"] - 1
        assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["a.trace"]

    @pytest.mark.parametrize("place", [".", "/no/such/a.trace", "/dev/full"])
    def test_a_place_for_no_file_is_wrong_usage(self, place: str) -> None:
        ended = run_hotslot("ask", "--trace", place, *QUESTION)
        assert (ended.status, ended.out) == (2, "")
        assert ended.err == f"hotslot: --trace {place}: give a file in a folder that exists.\n"

    def test_a_prompt_that_is_refused_leaves_no_trace(self, tmp_path: Path) -> None:
        ended = run_hotslot("ask", "--trace", str(tmp_path / "a.trace"), "--context", "8", *QUESTION)
        assert ended.status == 1
        assert len(ended.err.splitlines()) == 1
        assert not (tmp_path / "a.trace").exists()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("overlap", ["--bench-slots", "48", "--replays", "2", "--rounds", "1", "--misses", "2"]),
        (
            "decode",
            [
                "--layers",
                "4",
                "--bench-slots",
                "48",
                "--steps",
                "2",
                "--rounds",
                "1",
                "--rows",
                "1",
                "--hit-rate",
                "0.5",
            ],
        ),
    ],
)
def test_benches_of_the_runtime_run_in_a_process_of_their_own(
    name: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """On a tiny model, so that a machine without a GPU shows that the code of a GPU runs."""
    assert main(["bench", name, "--tiny", *options, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    if name == "overlap":
        (found,) = report["by_misses"]
        assert found["bitwise_identical"]
        assert found["misses_counted"] == 2
        with_shared, without_shared = found["us_per_layer"].values()
        assert found["shared_expert_serial_us"] == pytest.approx(with_shared - without_shared)
    else:
        arms = {(arm["dense"], arm["policy"]) for arm in report["arms"]}
        assert arms == {(dense, policy) for dense in ("bf16", "fp8") for policy in ("lru", "rule")}
        assert all(arm["ms_per_token"] > 0 for arm in report["arms"])
        assert all(arm["hit_rate"] == pytest.approx(0.5, abs=0.01) for arm in report["arms"])


def test_the_bench_of_side_calls_prints_what_each_side_gets(capsys: pytest.CaptureFixture[str]) -> None:
    times = ["--seconds", "1", "--seconds-alone", "0.5", "--trace-tokens", "100", "--prompt-tokens", "20"]
    assert main(["bench", "side-calls", "--tiny", "--layers", "4", "--bench-slots", "48", *times]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert all(any(character.isdigit() for character in line) for line in lines[:-1])


def test_what_a_bench_refuses_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "overlap", "--misses", "many"]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone counts what is read from a disk")
def test_the_bench_of_loading_prints_both_rates_and_their_ratio(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if not counts_disk_reads(tmp_path):
        pytest.skip("the kernel counts no disk reads on this file system")
    assert main(["bench", "load", "--rounds", "1", "--context", "256"]) == 0
    lines = capsys.readouterr().out.splitlines()
    figures = {line.split("  ")[0].strip(): line.split("  ")[-1].strip() for line in lines}
    read_rate, disk_rate = (float(figures[name].split()[0]) for name in ("read while loading", "the disk alone"))
    assert float(figures["ratio"]) == pytest.approx(read_rate / disk_rate, abs=0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone counts what is read from a disk")
def test_loading_is_measured_by_phase(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    make_checkpoint("qwen3_moe", "modelopt", tmp_path / "model", num_layers=40)
    if not counts_disk_reads(tmp_path):
        pytest.skip("the kernel counts no disk reads on this file system")
    model = str(tmp_path / "model")
    assert main(["bench", "load", "--model", model, "--rounds", "1", "--context", "256", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(figures["seconds"]) == ["opening", "dense", "experts", "slots", "warmup", "whole"]
    assert figures["disk_bytes"] >= figures["weights_bytes"]
    assert figures["is_verified"]
    assert figures["disk_rate"] > 0
    assert figures["ratios"] == [pytest.approx(figures["read_rate"] / figures["disk_rate"])]
