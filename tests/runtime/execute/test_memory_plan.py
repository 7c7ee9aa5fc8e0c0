"""On a CPU the plan is the process's memory, within 5 %: once loaded, and after every kind of work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.client import child_environment
from runtime.options import EngineOptions
from tests.support.engine_driver import EngineDriver

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from Linux")
REPO = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys
from pathlib import Path
from runtime.telemetry.process_memory import library_bytes, resident_bytes
from runtime.execute.engine import Engine
from runtime.checkpoint.facts import read_facts
from runtime.memory.budget import plan
from runtime.memory.probe import probe_machine
from runtime.options import EngineOptions, SamplingOptions
from runtime.protocol import ChatMessage, Finished, Generate, LoadModel, Score, Scored
folder, knobs = Path(sys.argv[1]), json.loads(sys.argv[2])
events = []
engine = Engine(events.append)
options = EngineOptions(folder, device="cpu", **knobs)
budget = plan(read_facts(folder), probe_machine(options, resident_bytes(), library_bytes()), options)
mapped = []
def held_bytes():
    # The system takes pages of libraries back as it likes: one that was mapped once counts as held.
    mapped.append(library_bytes())
    return resident_bytes() - mapped[-1] + max(mapped)
def peak_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
measured = {}
def measure(name):
    measured[name] = {"held": held_bytes(), "peak": peak_bytes()}
def run(request):
    engine.handle(request)
    while not engine.is_idle:
        engine.step()
    assert isinstance(events[-1], Finished | Scored), events[-1]
def answer(name, messages, num_tokens):
    sampling = SamplingOptions(temperature=2.0, max_tokens=num_tokens, seed=1)
    run(Generate(name, tuple(messages), sampling, conversation_id=name))
def user(num_words, first=0):
    return ChatMessage("user", " ".join(f"word{word}" for word in range(first, first + num_words)))
def chat(num_turns):
    messages = []
    for turn in range(num_turns):
        messages.append(user(20, 100 * turn))
        answer("chat", messages, 40)
        messages.append(ChatMessage("assistant", events[-1].text))
def together(num_requests):
    sampling = SamplingOptions(temperature=2.0, max_tokens=200, seed=1)
    for number in range(num_requests):
        kind = "side_call" if number else "chat"
        messages = (user(200 if number else 900, 1000 * number),)
        engine.handle(Generate(f"together{number}", messages, sampling, kind=kind))
    while not engine.is_idle:
        engine.step()
    ended = {event.request_id for event in events if isinstance(event, Finished)}
    assert {f"together{number}" for number in range(num_requests)} <= ended
work = {
    "short": lambda: answer("short", [user(5)], 30),
    "900 words": lambda: answer("900 words", [user(900)], 30),
    "7000 tokens": lambda: answer("7000 tokens", [user(1620)], 4),
    "score": lambda: run(Score("score", token_ids=tuple(range(1, 2001)))),
    "score by decode": lambda: run(Score("score by decode", token_ids=tuple(range(1, 401)), by_decode=True)),
    "chat": lambda: chat(10),
    "four at once": lambda: together(4),
}
engine.handle(LoadModel(options))
measure("load")
for name in sys.argv[3:]:
    work[name]()
    measure(name)
print(json.dumps({"planned": budget.total_bytes, "measured": measured}))
"""
ALL_WORK = ("short", "score", "7000 tokens", "score by decode", "900 words", "chat", "four at once", "score")


def assert_plan_holds(
    folder: Path, knobs: dict[str, int | str], *work: str, figures_of: tuple[str, ...] = ("held", "peak")
) -> None:
    """The peak is what is planned; with the default number of threads and tokens of a step the process also holds it
    between requests."""
    command = [sys.executable, "-c", PROGRAM, str(folder), json.dumps(knobs), *work]
    run = subprocess.run(command, cwd=REPO, env=child_environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    figures = json.loads(run.stdout)
    assert set(figures["measured"]) == {"load", *work}
    for measured in figures["measured"].values():
        for figure in figures_of:
            assert abs(measured[figure] / figures["planned"] - 1) < 0.05, figures


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        pytest.param({"vram_bytes": 160 << 20}, marks=pytest.mark.long),
        pytest.param({"num_slots": 40, "context_tokens": 4096}, marks=pytest.mark.long),
        {"dtype": "fp32"},
    ],
)
def test_planned_and_measured_memory_agree(demo_folder: Path, knobs: dict[str, int | str]) -> None:
    assert_plan_holds(demo_folder, knobs, "short", "900 words", "score")


def test_the_plan_holds_for_a_prompt_that_nearly_fills_the_context(demo_folder: Path) -> None:
    assert_plan_holds(demo_folder, {}, "7000 tokens")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("knobs", [{}, {"num_threads": 1}, {"chunk_tokens": 128}])
def test_the_plan_holds_whatever_is_asked(demo_folder: Path, knobs: dict[str, int | str]) -> None:
    assert_plan_holds(demo_folder, knobs, *ALL_WORK, figures_of=("peak",))


@pytest.mark.parametrize("context_tokens", [1, 2, 64, 65])
def test_a_context_of_few_tokens_warms_up(demo_folder: Path, context_tokens: int) -> None:
    driver = EngineDriver(EngineOptions(demo_folder, num_slots=4, num_threads=1, context_tokens=context_tokens))
    assert driver.loaded.context_limit_tokens == context_tokens
