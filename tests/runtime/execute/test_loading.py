"""Loading reads every tensor once, reports bytes, holds little beside what it keeps, and stops without a trace."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from runtime.checkpoint.facts import open_checkpoint
from runtime.checkpoint.tensors import TensorSource
from runtime.client import EngineClient
from runtime.errors import EngineError
from runtime.execute.engine import Engine
from runtime.options import EngineOptions
from runtime.protocol import Event, Loaded, LoadModel, LoadProgressed
from scripts.make_checkpoint import make_checkpoint

REPO = Path(__file__).resolve().parents[3]
PEAK = """
import json, resource, sys, threading, time
from pathlib import Path
import psutil
from runtime.execute.engine import Engine
from runtime.options import EngineOptions
from runtime.protocol import LoadModel
process, peak, is_loading = psutil.Process(), 0, True
def watch():
    global peak
    while is_loading:
        peak = max(peak, process.memory_info().rss)
        time.sleep(0.005)
engine = Engine(lambda event: None)
base = process.memory_info().rss
thread = threading.Thread(target=watch)
thread.start()
engine.handle(LoadModel(EngineOptions(Path(sys.argv[1]), num_slots=8, num_threads=1, context_tokens=64)))
is_loading = False
thread.join()
model = engine._model
experts, dense = model.experts.store.num_bytes, model.forward._decoder.dense_bytes
print(json.dumps({"peak": peak - base, "experts": experts, "dense": dense}))
"""


def load(folder: Path) -> list[Event]:
    events: list[Event] = []
    Engine(events.append).handle(LoadModel(EngineOptions(folder, num_slots=8, num_threads=1, context_tokens=128)))
    return events


@pytest.mark.parametrize(
    ("family", "format_name"), [("qwen4_exp", "modelopt"), ("qwen3_5_moe", "modelopt-mixed"), ("qwen3_next", "bf16")]
)
def test_every_tensor_is_read_once(
    family: str, format_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_checkpoint(family, format_name, tmp_path)
    num_reads: Counter[str] = Counter()
    get = TensorSource.get

    def counted(self: TensorSource, name: str) -> object:
        num_reads[name] += 1
        return get(self, name)

    monkeypatch.setattr(TensorSource, "get", counted)
    assert isinstance(load(tmp_path)[-1], Loaded)
    # One scale of a few bytes serves all shards of an n-gram table.
    assert {count for name, count in num_reads.items() if not name.endswith("ngram_embedding.weight_scale")} == {1}
    skipped = ("visual.", "mtp.", "input_scale")
    names = {name for name in open_checkpoint(tmp_path).files.entries if not any(part in name for part in skipped)}
    assert set(num_reads) == names


def test_bytes_are_reported_as_they_come(tmp_path: Path) -> None:
    make_checkpoint("qwen3_5_moe", "modelopt", tmp_path)
    reports = [event for event in load(tmp_path) if isinstance(event, LoadProgressed)]
    for phase in ("dense", "experts"):
        done = [event.done_bytes for event in reports if event.phase == phase]
        assert done == sorted(done)
        assert done[0] == 0
        assert done[-1] == next(event.total_bytes for event in reports if event.phase == phase)


def test_a_cancelled_load_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    """The app cancels by closing the client; here, from the first report about experts."""
    make_checkpoint("qwen3_moe", "modelopt", tmp_path, num_layers=40)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    client = EngineClient(EngineOptions(tmp_path, num_threads=1))
    client.start()
    process_id = client._process.pid  # type: ignore[union-attr]

    def close_at_experts(progress: LoadProgressed) -> None:
        if progress.phase == "experts":
            client.close()

    with pytest.raises(EngineError):
        client.load(close_at_experts)
    assert not client.is_alive
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == before


@pytest.mark.long
@pytest.mark.parametrize("format_name", ["modelopt-attention", "bf16"])
def test_the_peak_is_what_is_kept_and_one_shard(format_name: str, tmp_path: Path) -> None:
    """Two layers of Qwen3-30B-A3B at full width."""
    make_checkpoint("qwen3_moe", format_name, tmp_path, size="geometry", num_layers=2)
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, "-c", PEAK, str(tmp_path)]
    run = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, check=True)
    figures = json.loads(run.stdout)
    shard = max(file.stat().st_size for file in tmp_path.glob("*.safetensors"))
    assert figures["peak"] <= 1.1 * (figures["experts"] + figures["dense"] + shard), figures
