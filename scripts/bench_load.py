"""How fast a model folder is loaded against what its disk gives, as JSON; for known models: `hotslot bench load`.

Example: python scripts/bench_load.py models/next4 --rounds 3
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

# Run as a file, Python looks for imports beside it, not in the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app.commands.load_figures import measure
from runtime.options import EngineOptions, parse_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--ram", help="plan as if there were so much memory")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder.parent) as scratch:
        options = EngineOptions(
            arguments.folder,
            device=arguments.device,
            context_tokens=256,
            cache_dir=Path(scratch),
            ram_bytes=None if arguments.ram is None else parse_size(arguments.ram),
        )
        figures = measure(options, arguments.rounds)
    print(json.dumps({**asdict(figures), "ratio": figures.ratio}, indent=1))


if __name__ == "__main__":
    main()
