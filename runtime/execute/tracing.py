"""Starts and saves routing traces of one model, at most one at a time. Nothing is recorded without being asked."""

from pathlib import Path

from runtime.errors import RequestError
from runtime.execute.decode_graph import DecodeSteps
from runtime.experts.device_routed import DeviceExperts
from runtime.experts.routed import SlotExperts
from runtime.experts.trace import TraceFacts
from runtime.experts.trace_writer import TraceWriter
from runtime.protocol import StartTrace, StopTrace, TraceSaved, TraceStarted
from runtime.spec import ModelSpec


class Tracing:
    """The recorder of a model's experts, while there is one."""

    def __init__(
        self, spec: ModelSpec, experts: SlotExperts | DeviceExperts, decode_steps: DecodeSteps | None = None
    ) -> None:
        self._facts = TraceFacts(spec.name, spec.num_layers, spec.moe.num_experts, spec.moe.num_experts_per_token)
        self._experts = experts
        self._decode_steps = decode_steps
        self._writer: TraceWriter | None = None

    def start(self, command: StartTrace) -> TraceStarted:
        """Raises RequestError while another trace is recorded, TraceError for a place that can't be written."""
        if self._writer is not None:
            raise RequestError("A trace is being recorded already; save it first.")
        self._writer = self._experts.recorder = TraceWriter(Path(command.path), self._facts)
        if self._decode_steps is not None:
            self._decode_steps.record_routing(True)
        return TraceStarted(command.request_id)

    def stop(self, command: StopTrace) -> TraceSaved:
        """Raises RequestError where none is recorded, TraceError where the file can't be written."""
        writer, self._writer = self._writer, None
        if writer is None:
            raise RequestError("No trace is being recorded; start one first.")
        self._experts.recorder = None
        if self._decode_steps is not None:
            self._decode_steps.record_routing(False)
        writer.save()
        return TraceSaved(command.request_id, writer.num_steps)
