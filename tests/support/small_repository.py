"""A small repository in the shape of a published one: shards of noise under an index, and files that nobody needs."""

import json
import random

from runtime.downloads.file_names import INDEX_NAME

REPO_ID = "someone/Small-Model"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def small_model(shard_bytes: int = 600_000) -> dict[str, bytes]:
    """Two shards of noise, an index that names them and a shard of MTP, and files that nobody needs."""
    content = random.Random(5)
    weight_map = {"model.a": SHARDS[0], "model.b": SHARDS[1], "mtp.layers.0.x": "mtp.safetensors"}
    return {
        "config.json": b'{"model_type": "qwen3_moe"}',
        "tokenizer.json": content.randbytes(3000),
        "README.md": b"---\nlicense: apache-2.0\n---\n",
        INDEX_NAME: json.dumps({"weight_map": weight_map}).encode(),
        SHARDS[0]: content.randbytes(shard_bytes),
        SHARDS[1]: content.randbytes(shard_bytes // 2),
        "mtp.safetensors": content.randbytes(1000),
        "original/consolidated.safetensors": content.randbytes(1000),
        "figure.png": content.randbytes(1000),
    }
