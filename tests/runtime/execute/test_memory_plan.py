"""On a CPU the plan is the process's memory, within 5 %, once loaded and after a long chat."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.client import child_environment

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
from runtime.protocol import ChatMessage, Generate, LoadModel
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
engine.handle(LoadModel(options))
measured = [held_bytes()]
for number, num_words in enumerate((5, 900)):
    message = ChatMessage("user", " ".join(f"word{word}" for word in range(num_words)))
    engine.handle(Generate(f"r{number}", (message,), SamplingOptions(temperature=2.0, max_tokens=30, seed=1)))
    while not engine.is_idle:
        engine.step()
    measured.append(held_bytes())
print(json.dumps({"planned": budget.total_bytes, "measured": measured, "last": type(events[-1]).__name__}))
"""


@pytest.mark.parametrize("knobs", [{}, {"vram_bytes": 160 << 20}, {"num_slots": 40, "context_tokens": 4096}])
def test_planned_and_measured_memory_agree(demo_folder: Path, knobs: dict[str, int]) -> None:
    command = [sys.executable, "-c", PROGRAM, str(demo_folder), json.dumps(knobs)]
    run = subprocess.run(command, cwd=REPO, env=child_environment(), capture_output=True, text=True, check=True)
    figures = json.loads(run.stdout)
    assert figures["last"] == "Finished"
    for measured in figures["measured"]:
        assert abs(measured / figures["planned"] - 1) < 0.05, figures
