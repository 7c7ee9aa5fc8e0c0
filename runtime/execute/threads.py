"""How many CPU threads a step runs on. A pure decision.

Small matrices are read faster than sleeping threads wake, and an app that draws beside the engine needs a core. So
decode gets one thread per 8 MiB of weights in a layer, and so do short prefill chunks, since their experts see few
tokens each; a long chunk gets every core.
"""

from dataclasses import dataclass

from runtime.memory.rates import decode_threads
from runtime.spec import ModelSpec

_SHORT_CHUNK_TOKENS = 128
"""Measured with the demo model: 32, 64 and 128 tokens take 62, 82 and 111 ms on one thread; on two 142, 206 and 231 ms
beside other programs, and no less than on one with both cores to themselves."""


@dataclass(frozen=True)
class ThreadPlan:
    """Threads of a decode step and of a long prefill chunk."""

    decode: int
    prefill: int

    @classmethod
    def build(cls, spec: ModelSpec, num_cores: int, num_threads: int | None) -> "ThreadPlan":
        """`num_threads` is the user's choice for every step, None for ours."""
        if num_threads is not None:
            return cls(num_threads, num_threads)
        return cls(decode_threads(spec, num_cores), num_cores)

    def of_step(self, num_tokens: int) -> int:
        """Threads for a step of so many tokens."""
        return self.decode if num_tokens <= _SHORT_CHUNK_TOKENS else self.prefill
