"""Warm start: the experts that had slots come back into them at the next start, and what their policy knew with them.

They come in batches, when nothing else runs or before a chunk of a prompt, so that a request waits for one batch at
most. They are saved when the engine falls idle, while it works at an interval, and when it is told to end.
"""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray

from runtime.experts.device_routed import DeviceExperts
from runtime.experts.policy import make_policy, take_history
from runtime.experts.routed import SlotExperts
from runtime.memory.residents import History, ResidentFile, ResidentSet

CPU_BATCH_BYTES, CUDA_BATCH_BYTES = 32 << 20, 512 << 20
"""Records of one batch: each about ten milliseconds of copying from memory. From a disk the small one takes longer."""
SAVE_INTERVAL_S = 30.0
_logger = logging.getLogger("hotslot.engine")


class WarmStart:
    """Fills the slots of `experts` from a file, and keeps the file. Without a file it does nothing."""

    def __init__(
        self,
        file: ResidentFile | None,
        experts: SlotExperts | DeviceExperts,
        policy: str,
        slot_bytes: int,
        between_steps: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`between_steps` orders copies with decode steps and chunks: see `Forward`."""
        self._file, self._experts, self._policy = file, experts, policy
        self._between_steps = between_steps
        batch_bytes = CUDA_BATCH_BYTES if experts.pool.is_cuda and experts.store.records_stay else CPU_BATCH_BYTES
        self._batch = max(1, batch_bytes // slot_bytes)
        self._waiting: list[int] = []
        self._saved_s = time.monotonic()
        self._saved_routed = 0

    def begin(self) -> None:
        """Read the file. To be called when the model is loaded and every slot is empty."""
        residents = self._file.read() if self._file is not None else None
        if residents is None:
            return
        if residents.policy == self._policy:
            try:
                self._experts.cache.take_history(residents.history)
            except KeyError:
                _logger.warning("the saved history is not that of %s: the policy starts anew", self._policy)
        self._waiting = residents.owners.tolist()[: self._experts.cache.num_slots]
        _logger.info("warm start: %d experts are brought back", len(self._waiting))

    @property
    def is_filling(self) -> bool:
        """Experts still wait for a slot."""
        return bool(self._waiting)

    @property
    def has_work(self) -> bool:
        """Something is to be done while no request runs."""
        return self.is_filling or self._is_changed

    def work(self) -> None:
        """One batch, or a save. Never raises: without it the engine is slower, not wrong."""
        if self.is_filling:
            self.fill_batch()
        else:
            self.save_changes()

    def fill_batch(self) -> None:
        """Bring one batch of experts back, if some wait. What fails is given up."""
        if not self._waiting:
            return
        batch, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
        try:
            with self._between_steps():
                self._experts.fill(batch)
        except Exception:
            _logger.exception("warm start ends")
            self._waiting = []
            # Nobody knows what lies in the slots that were to be filled.
            self._experts.clear()
        if self._experts.cache.num_used == self._experts.cache.num_slots:
            self._waiting = []

    def save_at_interval(self) -> None:
        """Save while requests run, so that a kill loses little."""
        if time.monotonic() - self._saved_s >= SAVE_INTERVAL_S:
            self.save_changes()

    def save_changes(self) -> None:
        """Write what is resident now, if that is not known to the file. A disk that refuses is named in the log."""
        if self._file is None or not self._is_changed:
            return
        self._saved_s = time.monotonic()
        self._saved_routed = self._experts.cache.counters.num_routed
        try:
            with self._between_steps():
                residents = self._residents()
            self._file.write(residents)
        except OSError as error:
            _logger.warning("the resident experts can't be saved: %s (%s)", self._file.path, error.strerror)

    @property
    def _is_changed(self) -> bool:
        """Decode steps since the last save; prefill alone teaches nothing."""
        return self._file is not None and self._experts.cache.counters.num_routed != self._saved_routed

    def _residents(self) -> ResidentSet:
        cache = self._experts.cache
        history = cache.history()
        resident = [layer * cache.num_experts + expert for layer, expert, _ in cache.residents()]
        owners = by_worth(self._policy, cache.num_layers, cache.num_experts, history, resident)
        return ResidentSet(self._policy, owners, history, cache.num_slots, cache.counters.hit_rate)


def by_worth(
    policy_name: str, num_layers: int, num_experts: int, history: History, resident: list[int]
) -> NDArray[np.int64]:
    """Residents, then other experts that were ever used, each dearest first by the policy's own scores.

    More slots than before are filled by the others, fewer keep the dearest.
    """
    policy = make_policy(policy_name, num_layers, num_experts)
    num_owners = num_layers * num_experts
    is_used = np.zeros(num_owners, bool)
    for name, untouched in policy.history().items():
        if len(untouched) == num_owners:
            is_used |= history[name] != untouched
    take_history(policy, history)
    is_resident = np.zeros(num_owners, bool)
    is_resident[resident] = True
    worth = np.lexsort((-policy.scores(0, np.arange(num_owners)), ~is_resident))
    return worth[(is_used | is_resident)[worth]]
