"""Owns text generation with SmolLM2-135M-Instruct: GGUF weights, a decode step, endless streams of chats on one GPU.

Each row of the batch is a stream: a prompt is fed token by token through the same step that samples, the chat ends,
the next prompt begins. The step is one CUDA graph and never waits for the host.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

LAYERS, HEADS, KV_HEADS, WIDTH, HIDDEN = 30, 9, 3, 64, 576
IM_START, IM_END = 1, 2
NUM_SPECIAL = 17
ASKING_TEMPERATURE, ANSWER_TEMPERATURE = 1.0, 0.4
ENDED, CUT = 1 << 16, 2 << 16
SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"

if triton is not None:

    @triton.jit
    def decode_attention(
        queries, keys, values, positions, output, length, RATIO: tl.constexpr, KV: tl.constexpr, BLOCK: tl.constexpr
    ):
        row = tl.program_id(0)
        head = tl.program_id(1)
        position = tl.load(positions + row)
        query_id = tl.arange(0, 16)
        dim = tl.arange(0, 64)
        inside = query_id[:, None] < RATIO
        offset = row * (RATIO * KV * 64) + (head * RATIO + query_id)[:, None] * 64 + dim[None, :]
        q = tl.load(queries + offset, mask=inside, other=0.0)
        base = (row * KV + head) * length * 64
        peak = tl.full([16], -1e30, tl.float32)
        total = tl.zeros([16], tl.float32)
        acc = tl.zeros([16, 64], tl.float32)
        for start in range(0, position + 1, BLOCK):
            index = start + tl.arange(0, BLOCK)
            seen = index <= position
            k = tl.load(keys + base + index[:, None] * 64 + dim[None, :], mask=seen[:, None], other=0.0)
            scores = tl.where(seen[None, :], tl.dot(q, tl.trans(k)) * 0.125, -1e30)
            new_peak = tl.maximum(peak, tl.max(scores, 1))
            weights = tl.exp(scores - new_peak[:, None])
            shrink = tl.exp(peak - new_peak)
            v = tl.load(values + base + index[:, None] * 64 + dim[None, :], mask=seen[:, None], other=0.0)
            total = total * shrink + tl.sum(weights, 1)
            acc = acc * shrink[:, None] + tl.dot(weights.to(tl.bfloat16), v)
            peak = new_peak
        tl.store(output + offset, (acc / total[:, None]).to(tl.bfloat16), mask=inside)


def read_gguf(path: Path) -> tuple[dict[str, Tensor], object]:
    """-> tensors by GGUF name in fp32, and the reader's fields."""
    from gguf import GGUFReader  # needed by this stage alone
    from gguf.quants import dequantize

    reader = GGUFReader(path)
    tensors = {t.name: torch.from_numpy(np.array(dequantize(t.data, t.tensor_type))).float() for t in reader.tensors}
    return tensors, reader.fields


def half_split(weight: Tensor, heads: int) -> Tensor:
    """GGUF interleaves the two rotary halves of each head; undo that."""
    pairs = weight.reshape(heads, weight.shape[0] // heads // 2, 2, weight.shape[1])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def read_tokenizer(fields):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    def strings(key: str) -> list[str]:
        return [bytes(fields[key].parts[index]).decode("utf8") for index in fields[key].data]

    tokens = strings("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in strings("tokenizer.ggml.merges")]
    types = fields["tokenizer.ggml.token_type"]
    kinds = [int(types.parts[index][0]) for index in types.data]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    split = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer


@dataclass(frozen=True)
class TeacherLayer:
    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    norm1: Tensor
    norm2: Tensor


class Teacher:
    """The Llama forward with a KV cache of `length` tokens for `rows` rows."""

    def __init__(self, tensors: dict[str, Tensor], rows: int, length: int, device: str, dtype: torch.dtype) -> None:
        self.rows, self.length, self.device = rows, length, device
        self.embedding = tensors["token_embd.weight"].to(device, dtype)
        self.norm = tensors["output_norm.weight"].to(device, dtype)
        self.layers = [self.read_layer(tensors, f"blk.{i}.", device, dtype) for i in range(LAYERS)]
        shape = (LAYERS, rows, KV_HEADS, length, WIDTH)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        frequency = 1.0 / 100000.0 ** (torch.arange(0, WIDTH, 2, device=device).float() / WIDTH)
        angle = torch.arange(length, device=device).float()[:, None] * frequency
        angle = torch.cat([angle, angle], -1)
        self.cos, self.sin = angle.cos().to(dtype), angle.sin().to(dtype)
        self.row_ids = torch.arange(rows, device=device)

    @staticmethod
    def read_layer(tensors: dict[str, Tensor], stem: str, device: str, dtype: torch.dtype) -> TeacherLayer:
        def get(name: str) -> Tensor:
            return tensors[f"{stem}{name}.weight"].to(device, dtype)

        qkv = [half_split(get("attn_q"), HEADS), half_split(get("attn_k"), KV_HEADS), get("attn_v")]
        return TeacherLayer(
            torch.cat(qkv),
            get("attn_output"),
            torch.cat([get("ffn_gate"), get("ffn_up")]),
            get("ffn_down"),
            get("attn_norm"),
            get("ffn_norm"),
        )

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """One token per row at `positions` -> logits [rows, vocab]."""
        x = self.embedding[tokens]
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        for index, layer in enumerate(self.layers):
            y = functional.rms_norm(x, (HIDDEN,), layer.norm1, 1e-5)
            q, k, v = (
                functional.linear(y, layer.qkv)
                .view(-1, HEADS + 2 * KV_HEADS, WIDTH)
                .split([HEADS, KV_HEADS, KV_HEADS], 1)
            )
            self.keys[index][self.row_ids, :, positions] = self.rope(k, cos, sin)
            self.values[index][self.row_ids, :, positions] = v
            read = self.attend(index, self.rope(q, cos, sin).contiguous(), positions)
            x = x + functional.linear(read.view(-1, HIDDEN), layer.out)
            gate, up = functional.linear(functional.rms_norm(x, (HIDDEN,), layer.norm2, 1e-5), layer.gate_up).chunk(
                2, -1
            )
            x = x + functional.linear(functional.silu(gate) * up, layer.down)
        return functional.linear(functional.rms_norm(x, (HIDDEN,), self.norm, 1e-5), self.embedding)

    def attend(self, index: int, q: Tensor, positions: Tensor) -> Tensor:
        keys, values = self.keys[index], self.values[index]
        if q.is_cuda:
            output = torch.empty_like(q)
            grid = (self.rows, KV_HEADS)
            decode_attention[grid](
                q, keys, values, positions, output, self.length, HEADS // KV_HEADS, KV_HEADS, 64, num_warps=2
            )
            return output
        seen = torch.arange(self.length, device=q.device) <= positions[:, None]
        grouped = q.view(-1, KV_HEADS, HEADS // KV_HEADS, WIDTH)
        return functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=seen[:, None, None]).flatten(
            1, 2
        )

    @staticmethod
    def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin


def sample(logits: Tensor, temperature: Tensor, log_min_p: Tensor) -> tuple[Tensor, Tensor]:
    """Min-p sampling by the Gumbel trick -> token and its log-probability at temperature 1."""
    logits = logits.float()
    scaled = logits / temperature[:, None]
    scaled = torch.where(scaled < scaled.amax(-1, keepdim=True) + log_min_p[:, None], float("-inf"), scaled)
    noise = -torch.log(-torch.log(torch.rand_like(scaled).clamp(1e-20, 1 - 1e-7)))
    token = (scaled + noise).argmax(-1)
    return token, logits.gather(1, token[:, None])[:, 0] - logits.logsumexp(-1)


@dataclass(frozen=True)
class Prompts:
    """Flat prompt tokens; prompt i is tokens[start[i]:start[i + 1]], and leaves `turns[i]` answers to write.

    `asks[i]` is true where the stream is to write the user's question first.
    """

    tokens: np.ndarray
    start: np.ndarray
    asks: np.ndarray
    turns: np.ndarray

    @classmethod
    def encoded(cls, tokenizer, texts: list[str], asks: list[bool], turns: list[int]) -> "Prompts":
        ids = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
        start = np.cumsum([0] + [len(prompt) for prompt in ids])
        return cls(np.concatenate([np.array(prompt) for prompt in ids]), start, np.array(asks), np.array(turns))


class Streams:
    """State of all rows on the device, and the step that advances each by one token."""

    def __init__(self, teacher: Teacher, prompts: Prompts, tags: tuple[list[int], list[int]], num_steps: int) -> None:
        def ids(values) -> Tensor:
            return torch.as_tensor(values, device=teacher.device, dtype=torch.long)

        self.teacher = teacher
        assistant_tag, user_tag = tags
        count = len(prompts.tokens)
        self.tokens = ids(np.concatenate([prompts.tokens, assistant_tag, user_tag, [0] * 8]))
        self.assistant_tag, self.user_tag = count, count + len(assistant_tag)
        self.tags_end = self.user_tag + len(user_tag)
        self.start, self.asks, self.turns = ids(prompts.start), ids(prompts.asks), ids(prompts.turns)
        rows = teacher.rows
        zeros = torch.zeros(rows, device=teacher.device, dtype=torch.long)
        self.next_prompt = torch.arange(rows, device=teacher.device)
        self.position, self.cursor, self.cursor_end = zeros.clone(), zeros.clone(), zeros.clone()
        self.token = zeros.clone()
        self.asking, self.turns_left, self.answer_length = zeros.clone(), zeros.clone(), zeros.clone()
        self.log_probability = torch.zeros(rows, device=teacher.device)
        self.output = torch.zeros(num_steps, rows, device=teacher.device, dtype=torch.int32)
        self.scores = torch.zeros(num_steps, rows, device=teacher.device, dtype=torch.float16)
        self.step_index = torch.zeros(1, device=teacher.device, dtype=torch.long)
        self.prefix_length = 0
        self.sampler = sample

    def begin(self, prefix_length: int) -> None:
        self.prefix_length = prefix_length
        self.restart(torch.ones_like(self.token, dtype=torch.bool))

    def restart(self, rows: Tensor) -> None:
        prompt = self.next_prompt % self.asks.shape[0]
        first = self.start[prompt]
        fresh = (
            (self.next_prompt, self.next_prompt + self.teacher.rows),
            (self.position, torch.full_like(first, self.prefix_length)),
            (self.token, self.tokens[first]),
            (self.cursor, first + 1),
            (self.cursor_end, self.start[prompt + 1]),
            (self.asking, self.asks[prompt]),
            (self.turns_left, self.turns[prompt]),
            (self.answer_length, torch.zeros_like(first)),
            (self.log_probability, torch.zeros_like(self.log_probability)),
        )
        for state, value in fresh:
            state.copy_(torch.where(rows, value, state))

    def step(self, max_answer: int) -> None:
        logits = self.teacher.forward(self.token, self.position)
        asking = self.asking.bool()
        temperature = torch.where(asking, ASKING_TEMPERATURE, ANSWER_TEMPERATURE)
        sampled, log_probability = self.sampler(logits, temperature, torch.full_like(temperature, -2.302585))
        forced = self.cursor < self.cursor_end
        token = torch.where(forced, self.tokens[self.cursor], sampled)
        self.cursor.add_(forced)
        self.answer_length.copy_(torch.where(forced, 0, self.answer_length + 1))
        self.log_probability.add_(torch.where(forced | asking, 0.0, log_probability))
        ended = ~forced & (token == IM_END)
        broken = ~forced & ((token < NUM_SPECIAL) & (token != IM_END) | (self.answer_length > max_answer)) & ~ended
        broken = broken | (self.position + 8 > self.teacher.length) & ~ended
        to_answer = ended & asking
        to_question = ended & ~asking & (self.turns_left > 1)
        finished = ended & ~to_answer & ~to_question
        self.record(token, finished, broken)
        for rows, tag, tag_end, phase in (
            (to_answer, self.assistant_tag, self.user_tag, 0),
            (to_question, self.user_tag, self.tags_end, 1),
        ):
            self.cursor.copy_(torch.where(rows, tag, self.cursor))
            self.cursor_end.copy_(torch.where(rows, tag_end, self.cursor_end))
            self.asking.copy_(torch.where(rows, phase, self.asking))
        self.turns_left.sub_(to_question.long())
        self.token.copy_(token)
        self.position.add_(1)
        self.restart(finished | broken)

    def record(self, token: Tensor, finished: Tensor, broken: Tensor) -> None:
        self.output.index_copy_(0, self.step_index, (token + finished * ENDED + broken * CUT).int()[None])
        mean = self.log_probability / self.answer_length.clamp_min(1)
        self.scores.index_copy_(0, self.step_index, mean.half()[None])
        self.step_index.add_(1)


def prefill(teacher: Teacher, tokens: list[int]) -> None:
    """The same prefix in every row, one token at a time."""
    for position, token in enumerate(tokens):
        filled = torch.full((teacher.rows,), token, device=teacher.device)
        teacher.forward(filled, torch.full_like(filled, position))


@torch.no_grad()
def generate(
    teacher: Teacher, streams: Streams, prefix: list[int], seconds: float, max_answer: int = 110
) -> tuple[np.ndarray, np.ndarray]:
    """-> tokens and scores, each [rows, steps]; longer answers are cut, and dropped unless the reader wants them."""
    prefill(teacher, prefix)
    streams.begin(len(prefix))
    streams.sampler = torch.compile(sample, dynamic=False)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            streams.step(max_answer)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        streams.step(max_answer)
    began = time.time()
    last = streams.output.shape[0] - 60
    while time.time() - began < seconds and int(streams.step_index) < last:
        for _ in range(50):
            graph.replay()
        torch.cuda.synchronize()
    count = int(streams.step_index)
    print(f"{count} steps, {count * teacher.rows / (time.time() - began) / 1e3:.0f}k tok/s", flush=True)
    tokens, scores = streams.output[:count].t().contiguous().cpu(), streams.scores[:count].t().contiguous().cpu()
    return tokens.numpy(), scores.numpy()


def finished_chats(tokens: np.ndarray, scores: np.ndarray, with_cut: bool = False) -> list[tuple[np.ndarray, float]]:
    """One row's finished chats with the mean log-probability of the last answer; cut ones, too, where wanted."""
    chats, first = [], 0
    for last in np.nonzero(tokens >= ENDED)[0]:
        if with_cut or tokens[last] < CUT:
            chats.append((tokens[first : last + 1] & 0xFFFF, float(scores[last])))
        first = last + 1
    return chats
