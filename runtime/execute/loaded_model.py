"""A model that answers: its parts and figures, nothing that decides. Built once by `load.py`, complete when built."""

from dataclasses import dataclass

from runtime.execute.admission import Admission
from runtime.execute.device_memory import Memory
from runtime.execute.forward import Forward
from runtime.execute.overlap import OverlapDecision
from runtime.execute.tracing import Tracing
from runtime.execute.warm_start import WarmStart
from runtime.experts.device_routed import DeviceExperts
from runtime.experts.mapped_store import MappedStore
from runtime.experts.routed import SlotExperts
from runtime.options import EngineOptions, SamplingOptions
from runtime.protocol import EngineStats, Loaded
from runtime.schedule.scheduler import Scheduler
from runtime.spec import ModelSpec
from runtime.telemetry.meter import Meter
from runtime.telemetry.process_memory import resident_bytes
from runtime.text.chat_template import ChatTemplate
from runtime.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class LoadedModel:
    """Everything one loaded model consists of."""

    spec: ModelSpec
    options: EngineOptions
    device_name: str
    context_tokens: int
    forward: Forward
    experts: SlotExperts | DeviceExperts
    scheduler: Scheduler
    admission: Admission
    memory: Memory
    overlap: OverlapDecision
    tokenizer: Tokenizer | None
    template: ChatTemplate | None
    default_sampling: SamplingOptions
    load_s: float
    meter: Meter
    tracing: Tracing
    warm_start: WarmStart
    notice: str = ""

    def loaded_event(self) -> Loaded:
        """What the app learns once."""
        return Loaded(
            model_name=self.spec.name,
            context_limit_tokens=self.context_tokens,
            num_slots=self.experts.cache.num_slots,
            stats=self.stats(),
            tokenizer_fingerprint=self.tokenizer.fingerprint if self.tokenizer else "",
            has_chat_template=self.template is not None,
            can_think=self.template is not None and self.template.can_think,
            default_sampling=self.default_sampling,
            load_s=self.load_s,
            notice=self.notice,
        )

    def stats(self) -> EngineStats:
        """The figures now."""
        cache = self.experts.cache
        counters, store = cache.counters, self.experts.store
        limit, used = self.memory.limit_bytes, self.memory.used_bytes
        return EngineStats(
            model_name=self.spec.name,
            device=self.device_name,
            decode_tok_s=self.meter.decode_tok_s,
            prefill_tok_s=self.meter.prefill_tok_s,
            slot_hit_rate=counters.hit_rate,
            num_slots=cache.num_slots,
            num_slots_used=cache.num_used,
            num_experts=self.spec.num_layers * self.spec.moe.num_experts,
            vram_limit_bytes=limit,
            vram_used_bytes=used,
            vram_headroom_bytes=None if limit is None else limit - used,
            context_used_tokens=self.scheduler.num_tokens_in_context,
            context_limit_tokens=self.context_tokens,
            policy=self.options.policy,
            overlap_requested=self.options.overlap,
            overlap_level=self.overlap.level,
            overlap_reason=self.overlap.reason,
            num_routed=counters.num_routed,
            num_missed=counters.num_missed,
            num_missed_bytes=counters.num_missed_bytes,
            num_cached_records=store.cache.num_records if isinstance(store, MappedStore) else None,
            num_from_disk=counters.num_from_disk,
            num_disk_bytes=store.num_disk_bytes,
            disk_rate=counters.disk_rate,
            engine_rss_bytes=resident_bytes(),
            ram_limit_bytes=self.options.ram_bytes,
            num_running=self.scheduler.num_running,
            num_queued=self.scheduler.num_waiting,
            side_call_time_share=self.scheduler.side_call_time_share,
        )

    def reset_after_failure(self) -> None:
        """A step failed midway: residency is no longer certain, so every slot is emptied."""
        self.experts.clear()
