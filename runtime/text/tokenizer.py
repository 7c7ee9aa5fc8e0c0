"""Text to token ids and back, for byte-level BPE tokenizers (tokenizer.json).

Owns the vocabulary, the special tokens and the fingerprint. Text never becomes a special token here, whatever it
spells: the inner tokenizer knows no added tokens. Only the chat template places special tokens.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as BpeTokenizer

from runtime.errors import CheckpointError
from runtime.text.byte_level import bytes_of

FILE_NAME = "tokenizer.json"
SOON_ENCODED_CHARS = 2**18
"""Encoding so many takes less than a second."""


class Tokenizer:
    """`special_ids` maps every added token's spelling to its id, whether its file calls it special or not."""

    def __init__(self, document: dict[str, Any], fingerprint: str, source: str) -> None:
        self.fingerprint = fingerprint
        self.special_ids: dict[str, int] = {entry["content"]: entry["id"] for entry in document["added_tokens"]}
        self._special_names = {token_id: name for name, token_id in self.special_ids.items()}
        self._bpe = _without_special_tokens(document, source)
        self._token_bytes = _byte_table(self._bpe.get_vocab(with_added_tokens=False), source)
        self._longest_bytes = max(1, *map(len, self._token_bytes.values()))
        self._token_bytes |= {token_id: name.encode() for token_id, name in self._special_names.items()}
        self.vocab_size = max(self._token_bytes, default=-1) + 1

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """Read tokenizer.json, and added tokens that only tokenizer_config.json has. Raises CheckpointError."""
        path = folder / FILE_NAME
        try:
            content = path.read_bytes()
            document = json.loads(content)
            _add_configured_tokens(document["added_tokens"], folder / "tokenizer_config.json")
            if document["model"]["type"] != "BPE" or "ByteLevel" not in json.dumps(document["decoder"]):
                raise CheckpointError(f"{path} is not a byte-level BPE tokenizer; choose a Qwen checkpoint")
        except FileNotFoundError:
            raise CheckpointError(f"{path} is missing; download the model again") from None
        except OSError as error:
            raise CheckpointError(f"{path} can't be read ({error.strerror}); check its permissions") from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise CheckpointError(f"{path} is not a tokenizer file ({reason}); download it again") from None
        return cls(document, hashlib.sha256(content).hexdigest(), str(path))

    def encode_text(self, text: str) -> list[int]:
        """Ids of plain text; a special token's spelling becomes ordinary tokens. Lone surrogates become U+FFFD."""
        return self.encode_texts([text])[0]

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode_text` of each, faster together."""
        whole = [_without_surrogates(text) for text in texts]
        return [encoding.ids for encoding in self._bpe.encode_batch_fast(whole, add_special_tokens=False)]

    def least_tokens(self, text: str) -> int:
        """A lower bound of the length of `encode_text`, at once: no token has more bytes than the longest.

        The bytes are those of the normalized text, which may be fewer.
        """
        normalizer = self._bpe.normalizer
        whole = _without_surrogates(text)
        whole = whole if normalizer is None else normalizer.normalize_str(whole)
        return -(-len(whole.encode()) // self._longest_bytes)

    def decode(self, ids: Iterable[int], keep_special: bool = False) -> str:
        """Text of ids, special tokens as their spelling or left out; broken UTF-8 becomes U+FFFD."""
        kept = ids if keep_special else (token_id for token_id in ids if token_id not in self._special_names)
        return b"".join(map(self.token_bytes, kept)).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of one token; empty for the ids past the vocabulary that pad a model's embedding."""
        return self._token_bytes.get(token_id, b"")

    def special_name(self, token_id: int) -> str | None:
        """Spelling of a special token, None for every other id."""
        return self._special_names.get(token_id)


def _add_configured_tokens(added: list[dict[str, Any]], config_path: Path) -> None:
    if not config_path.is_file():
        return
    known = {entry["id"] for entry in added} | {entry["content"] for entry in added}
    for token_id, content in _configured_tokens(config_path):
        if token_id not in known and content not in known:
            added.append({"id": token_id, "content": content})


def _configured_tokens(config_path: Path) -> list[tuple[int, str]]:
    try:
        decoder = json.loads(config_path.read_bytes()).get("added_tokens_decoder") or {}
        return [(int(token_id), str(entry["content"])) for token_id, entry in decoder.items()]
    except OSError as error:
        raise CheckpointError(f"{config_path} can't be read ({error.strerror}); check its permissions") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise CheckpointError(
            f"{config_path} is not a tokenizer's configuration ({reason}); download it again"
        ) from None


def _without_special_tokens(document: dict[str, Any], source: str) -> BpeTokenizer:
    special = {entry["content"] for entry in document["added_tokens"]}
    model = document["model"]
    vocab = {token: token_id for token, token_id in model["vocab"].items() if token not in special}
    plain = {**document, "added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    plain["model"] = {**model, "vocab": vocab}
    try:
        return BpeTokenizer.from_str(json.dumps(plain))
    except Exception as error:  # the tokenizers library raises bare Exception
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{source} can't be used ({reason}); download it again") from None


def _byte_table(vocab: dict[str, int], source: str) -> dict[int, bytes]:
    try:
        return {token_id: bytes_of(token) for token, token_id in vocab.items()}
    except KeyError as error:
        raise CheckpointError(
            f"{source}: character {error} is outside the byte-level alphabet; download it again"
        ) from None


def _without_surrogates(text: str) -> str:
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
