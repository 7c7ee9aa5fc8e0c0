"""Writes a random checkpoint with the tensor names, dtypes and, for --size geometry, the shapes of published ones.

Example: python scripts/make_checkpoint.py qwen3_moe modelopt --size geometry --layers 2 --out models/two-layers
"""

import argparse
import json
import sys
from pathlib import Path

# Run as a file, Python looks for imports beside it, not in the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.checkpoints.geometries import PUBLISHED, config_json
from scripts.checkpoints.plan import plan_tensors
from scripts.checkpoints.storage import FORMATS
from scripts.checkpoints.writer import write_shards


def make_checkpoint(
    family: str, format_name: str, folder: Path, size: str = "tiny", num_layers: int | None = None, seed: int = 0
) -> None:
    """Write the folder; it has no tokenizer, so it can be scored by ids and benched, not chatted with."""
    folder.mkdir(parents=True, exist_ok=True)
    fmt, config = FORMATS[format_name], config_json(family, size, num_layers)
    if fmt.quantization_config:
        config["quantization_config"] = fmt.quantization_config
    if fmt.hf_quant_config:
        (folder / "hf_quant_config.json").write_text(json.dumps(fmt.hf_quant_config, indent=1))
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write_shards(plan_tensors(family, format_name, size, num_layers), folder, seed, _show)


def _show(done_bytes: int, total_bytes: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done_bytes / 1e9:.2f} of {total_bytes / 1e9:.2f} GB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=sorted(PUBLISHED))
    parser.add_argument("format", choices=list(FORMATS))
    parser.add_argument("--size", choices=("tiny", "geometry"), default="tiny")
    parser.add_argument("--layers", type=int, help="number of decoder layers, instead of the model's own")
    parser.add_argument("--out", type=Path, help="the folder to write; default FAMILY-FORMAT-SIZE in this one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", action="store_true", help="print the number of tensors and bytes, write nothing")
    arguments = parser.parse_args()
    if arguments.layers is not None and arguments.layers < 1:
        parser.error("--layers must be 1 or more")
    if arguments.count:
        tensors = list(plan_tensors(arguments.family, arguments.format, arguments.size, arguments.layers))
        print(f"{len(tensors)} tensors, {sum(tensor.num_bytes for tensor in tensors)} bytes")
        return
    folder = arguments.out or Path(f"{arguments.family}-{arguments.format}-{arguments.size}")
    make_checkpoint(arguments.family, arguments.format, folder, arguments.size, arguments.layers, arguments.seed)


if __name__ == "__main__":
    main()
