"""Loading reads every byte once, reports bytes, holds little beside what it keeps, and stops without a trace."""

import json
import mmap
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy
import pytest

from runtime.checkpoint.facts import open_checkpoint
from runtime.checkpoint.tensors import TensorSource
from runtime.client import EngineClient
from runtime.errors import EngineError
from runtime.execute.engine import Engine
from runtime.options import EngineOptions
from runtime.protocol import Event, Loaded, LoadModel, LoadProgressed
from scripts.checkpoints import writer
from scripts.make_checkpoint import make_checkpoint
from tests.support.byte_counts import counted_bytes
from tests.support.checkpoint_formats import FORMATS, save_as
from tests.support.tiny_families import family_config
from tests.support.tiny_models import random_model

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


PROBE_BYTES = 1 << 20
DISK_READS = """
import json, mmap, os, sys
from pathlib import Path
from runtime.checkpoint.tensors import TensorSource
from runtime.execute.engine import Engine
from runtime.options import EngineOptions
from runtime.protocol import Loaded, LoadModel
folder, num_releases, start = Path(sys.argv[1]), 0, None
def read_bytes():
    return int(Path("/proc/self/io").read_text().split("\\nread_bytes: ")[1].split("\\n")[0])
def drop(files):
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
init, map_file, release = TensorSource.__init__, TensorSource._map, TensorSource.release_pages
def started(self, files):
    global start
    init(self, files)
    drop(files.weight_files)
    start = read_bytes()
def mapped_without_readahead(self, entry):
    mapped = map_file(self, entry)
    mapped.madvise(mmap.MADV_RANDOM)
    return mapped
def released(self):
    global num_releases
    num_releases += 1
    release(self)
    drop(self.files.weight_files)
TensorSource.__init__, TensorSource._map, TensorSource.release_pages = started, mapped_without_readahead, released
probe = folder / "probe"
probe.write_bytes(os.urandom(1 << 20))
drop([probe])
before = read_bytes()
probe.read_bytes()
probed = read_bytes() - before
events = []
Engine(events.append).handle(LoadModel(EngineOptions(folder, num_slots=8, num_threads=1, context_tokens=64)))
assert isinstance(events[-1], Loaded), events[-1]
print(json.dumps({"probe": probed, "read": read_bytes() - start, "releases": num_releases}))
"""
SKIPPED = ("visual.", "mtp.", "input_scale", "input_global_scale")
WRITTEN = {
    "per expert": ("qwen3_next", "modelopt"),
    "per expert, mixed": ("qwen3_5_moe", "modelopt-mixed"),
    "n-gram table": ("qwen4_exp", "modelopt"),
    "bf16": ("qwen3_moe", "bf16"),
}
FUSED = ("nvfp4_fused", "fp16_fused", "fp8_blocks_fused", "compressed_tensors_fused")


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
    names = {name for name in open_checkpoint(tmp_path).files.entries if not any(part in name for part in SKIPPED)}
    assert set(num_reads) == names


@pytest.mark.parametrize("name", ["per expert", "per expert, mixed", "n-gram table", "bf16", *FUSED])
def test_every_byte_is_fetched_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte of every tensor the model has, in several shards, and no byte of any other."""
    if name in FUSED:
        model = random_model(family_config("qwen3_5_moe", hidden_size=160, moe_intermediate_size=144), seed=4)
        save_as(model, "qwen3_5_moe", FORMATS[name], tmp_path)
    else:
        monkeypatch.setattr(writer, "SHARD_BYTES", 300_000)
        make_checkpoint(*WRITTEN[name], tmp_path)
    files = open_checkpoint(tmp_path).files
    assert len(files.weight_files) > 2 or name in FUSED
    with counted_bytes(files) as fetched:
        assert isinstance(load(tmp_path)[-1], Loaded)
    wanted = {file: numpy.zeros_like(counts) for file, counts in fetched.counts.items()}
    for entry in files.entries.values():
        if not any(part in entry.name for part in SKIPPED):
            wanted[entry.file][entry.begin : entry.end] = 1
    wrong = {
        entry.name: fetched.counts[entry.file][entry.begin : entry.end].tolist()[:4]
        for entry in files.entries.values()
        if (fetched.counts[entry.file] != wanted[entry.file])[entry.begin : entry.end].any()
    }
    assert wrong == {}
    assert all(numpy.array_equal(counts, wanted[file]) for file, counts in fetched.counts.items())


def test_the_disk_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel says it read for a process of its own, with every page dropped as soon as it was given back."""
    monkeypatch.setattr(writer, "SHARD_BYTES", 4 << 20)
    make_checkpoint("qwen3_moe", "bf16", tmp_path, num_layers=40)
    command = [sys.executable, "-c", DISK_READS, str(tmp_path)]
    run = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True)
    figures = json.loads(run.stdout)
    if figures["probe"] < PROBE_BYTES:
        pytest.skip("the kernel counts no disk reads on this file system")
    files = open_checkpoint(tmp_path).files
    wanted = sum(entry.end - entry.begin for entry in files.entries.values())
    assert len(files.weight_files) > 3
    assert wanted > 10 << 20
    # A page that two layers share is read for both, and each file has two ends.
    shared = mmap.PAGESIZE * (figures["releases"] + 2 * len(files.weight_files))
    assert wanted <= figures["read"] <= wanted + shared, figures


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
