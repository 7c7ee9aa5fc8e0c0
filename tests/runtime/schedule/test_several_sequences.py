"""Promises of several sequences: chats first, side calls fair and held to their share, pages for all, none blocked."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from runtime.cache.sequence_cache import SequenceCache
from runtime.errors import RequestError
from runtime.protocol import RequestKind
from runtime.schedule.chunk_size import ChunkSize
from runtime.schedule.page_safety import Holding, spare_pages
from runtime.schedule.request import Sequence
from runtime.schedule.ride_size import RideSize
from runtime.schedule.scheduler import Scheduler
from runtime.schedule.step_plan import StepPlan

DECODE_S, ROW_S, TOKEN_S, CHUNK_S = 0.015, 0.006, 0.0012, 0.03
"""About what the demo model takes on two cores."""


def make(
    num_pages: int = 64, num_rows: int = 8, chunk_tokens: int = 32, target_s: float | None = None, max_running: int = 4
) -> Scheduler:
    return Scheduler(SequenceCache(num_pages, num_rows), chunk_tokens, max_running, chunk_target_s=target_s)


def request(name: str, num_prompt: int, num_new: int = 8, kind: RequestKind = "chat") -> Sequence:
    """Prompts of different names share no prefix."""
    first = sum(name.encode()) * 1000
    return Sequence(name, tuple(range(first, first + num_prompt)), kind=kind, max_new_tokens=num_new)


def step(scheduler: Scheduler, *sequences: Sequence, seconds: Callable[[StepPlan], float] | None = None) -> StepPlan:
    """One step as the engine takes it: every wanted row makes a token, answers end at their longest."""
    scheduler.admit()
    plan = scheduler.plan()
    assert plan is not None
    scheduler.complete(plan)
    by_id = {sequence.sequence_id: sequence for sequence in sequences}
    for segment in plan.segments:
        sequence = by_id[segment.sequence_id]
        if segment.logit_offsets and sequence.phase == "decode":
            sequence.generated_ids.append(len(sequence.generated_ids))
            if len(sequence.generated_ids) == sequence.max_new_tokens:
                scheduler.finish(sequence.sequence_id)
    if seconds is not None:
        scheduler.note_duration(plan, seconds(plan))
    scheduler.check_integrity()
    return plan


def cost(plan: StepPlan) -> float:
    if plan.is_decode:
        return DECODE_S + ROW_S * (len(plan.segments) - 1)
    return CHUNK_S + TOKEN_S * plan.num_tokens


def ids(plan: StepPlan) -> list[str]:
    return list(dict.fromkeys(segment.sequence_id for segment in plan.segments))


def submit(scheduler: Scheduler, *sequences: Sequence) -> None:
    for sequence in sequences:
        scheduler.submit(sequence)


def test_four_run_and_decode_in_one_step() -> None:
    scheduler = make()
    chats = [request(name, 5) for name in "abcde"]
    submit(scheduler, *chats)
    plans = [step(scheduler, *chats) for _ in range(8)]
    assert (scheduler.num_running, scheduler.num_waiting) == (4, 1)
    assert max(len(plan.segments) for plan in plans if plan.is_decode) == 4
    while not scheduler.is_idle:
        step(scheduler, *chats)
    assert all(len(chat.generated_ids) == 8 for chat in chats)


def test_a_chat_goes_before_side_calls_and_finds_its_place() -> None:
    scheduler = make()
    side_calls = [request(f"s{number}", 5, kind="side_call") for number in range(5)]
    submit(scheduler, *side_calls)
    assert [sequence.sequence_id for sequence in scheduler.admit()] == ["s0", "s1", "s2"]
    chats = [request("c1", 5), request("c2", 5)]
    submit(scheduler, *chats)
    assert [sequence.sequence_id for sequence in scheduler.admit()] == ["c1", "c2"]
    assert side_calls[2].phase == "waiting", "the youngest gives its place"
    assert scheduler.num_waiting == 3


def test_a_running_stream_has_a_token_after_every_chunk() -> None:
    scheduler = make(num_pages=128)
    stream, reader = request("stream", 5, 60), request("reader", 500)
    submit(scheduler, stream)
    step(scheduler, stream)
    submit(scheduler, reader)
    kinds = ["stream" in ids(step(scheduler, stream, reader)) for _ in range(30)]
    assert not any(first is False and second is False for first, second in pairwise(kinds))
    assert kinds.count(False) == 15


def test_side_calls_that_read_take_turns() -> None:
    scheduler = make()
    side_calls = [request(f"s{number}", 200, kind="side_call") for number in range(3)]
    submit(scheduler, *side_calls)
    order = [ids(step(scheduler, *side_calls))[0] for _ in range(9)]
    assert Counter(order) == {"s0": 3, "s1": 3, "s2": 3}


def test_side_calls_share_a_chunk_and_chats_do_not() -> None:
    scheduler = make(num_pages=128, chunk_tokens=100)
    side_calls = [request(f"s{number}", 80, kind="side_call") for number in range(3)]
    submit(scheduler, *side_calls)
    spans = [
        [(part.sequence_id, part.start, part.end) for part in step(scheduler, *side_calls).segments] for _ in range(2)
    ]
    assert spans[0] == [("s0", 0, 80), ("s1", 0, 20)]
    decoded = [[("s0", 80, 81)]]
    assert spans[1:] == decoded, "a chunk and a decode step in turn"
    assert [(part.sequence_id, part.end) for part in step(scheduler, *side_calls).segments] == [("s2", 80), ("s1", 40)]
    chats = [request(name, 30) for name in "ab"]
    scheduler = make(chunk_tokens=100)
    submit(scheduler, *chats)
    assert ids(step(scheduler, *chats)) == ["a"]


def test_without_a_chat_side_calls_have_all_the_time() -> None:
    scheduler = make()
    side_calls = [request(f"s{number}", 40, 20, kind="side_call") for number in range(3)]
    submit(scheduler, *side_calls)
    num_steps = 0
    while not scheduler.is_idle:
        step(scheduler, *side_calls, seconds=cost)
        num_steps += 1
    assert num_steps < 3 * 2 + 3 * 20
    assert scheduler.side_call_time_share is None


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("row_s", [0.0005, 0.006, 0.015])
def test_side_calls_keep_to_their_share_beside_a_chat(share: float, row_s: float) -> None:
    """Three side calls of 300 tokens and 60 answers, started anew as they end; a shared step's extra time is theirs."""
    scheduler = Scheduler(SequenceCache(128, 8), 256, 4, side_call_share=share, chunk_target_s=0.15)
    chat = request("chat", 100, 3000)
    submit(scheduler, chat)
    sequences = [chat]
    chat_s, total_s, gap_s, worst_gap_s, num_side_calls = 0.0, 0.0, 0.0, 0.0, 0

    def seconds(plan: StepPlan) -> float:
        return DECODE_S + row_s * (len(plan.segments) - 1) if plan.is_decode else cost(plan)

    while total_s < 30.0:
        running = [sequence for sequence in sequences if sequence.phase != "ended"]
        while len(running) < 4:
            running.append(request(f"side{num_side_calls}", 300, 60, kind="side_call"))
            submit(scheduler, running[-1])
            num_side_calls += 1
        sequences = running
        plan = step(scheduler, *sequences, seconds=seconds)
        took_s = seconds(plan)
        total_s, gap_s = total_s + took_s, gap_s + took_s
        if "chat" in ids(plan):
            chat_s += min(took_s, DECODE_S) if plan.is_decode else took_s
            worst_gap_s, gap_s = max(worst_gap_s, gap_s), 0.0
    used_share = 1 - chat_s / total_s
    assert used_share <= share + 0.03
    # Where riding along is cheap, decode can't use up the share.
    assert row_s == 0.0005 or used_share >= share - 0.03
    assert scheduler.side_call_time_share == pytest.approx(used_share, abs=0.08)
    assert worst_gap_s < 0.3
    assert num_side_calls > 3 or share == 0.1


class SlotBoundCard:
    """Step times where experts move over a bus: rows push out each other's, and the chat's come back step by step."""

    SOLO_S, BY_RIDERS_S, CHUNK_S = 0.016, (0.0, 0.018, 0.048, 0.074), 1.5

    def __init__(self) -> None:
        self.lost_s = self.chat_s = self.total_s = 0.0
        self.num_chat_tokens = 0

    def seconds(self, plan: StepPlan) -> float:
        """Told every plan once, in order."""
        num_riders = sum(segment.is_side_call for segment in plan.segments)
        if not plan.is_decode:
            self.total_s += self.CHUNK_S
            return self.CHUNK_S
        took_s = self.BY_RIDERS_S[num_riders] + self.lost_s
        if num_riders < len(plan.segments):
            # Keys and values to read grow with the context.
            alone_s = self.SOLO_S + 1e-6 * self.num_chat_tokens
            took_s += alone_s
            self.chat_s += alone_s
            self.num_chat_tokens += 1
        self.lost_s = 0.7 * self.lost_s + 0.002 * num_riders
        self.total_s += took_s
        return took_s


@pytest.mark.parametrize("share", [0.15, 0.3, 0.5])
def test_what_side_calls_take_from_the_chats_slots_is_theirs_too(share: float) -> None:
    scheduler = Scheduler(SequenceCache(256, 8), 512, 4, side_call_share=share)
    card, num_side_calls, riders = SlotBoundCard(), 0, Counter[int]()
    sequences = [request("chat", 100, 12_000)]
    submit(scheduler, *sequences)
    while sequences[0].phase != "decode":
        step(scheduler, *sequences, seconds=lambda plan: 0.1)
    while card.total_s < 120.0:
        sequences = [sequence for sequence in sequences if sequence.phase != "ended"]
        while len(sequences) < 4:
            num_side_calls += 1
            sequences.append(request(f"side{num_side_calls}", 300, 60, kind="side_call"))
            submit(scheduler, sequences[-1])
        plan = step(scheduler, *sequences, seconds=card.seconds)
        if plan.is_decode:
            riders[sum(segment.is_side_call for segment in plan.segments)] += 1
    assert 1 - card.chat_s / card.total_s == pytest.approx(share, abs=0.03)
    assert scheduler.side_call_time_share == pytest.approx(share, abs=0.15)
    assert riders[1] > 3 * (riders[2] + riders[3]), "one rider at a time costs less per token"


def test_all_ride_where_a_row_costs_little_and_one_where_several_cost_more_each() -> None:
    cheap, dear = RideSize(), RideSize()
    for _ in range(100):
        cheap.note(number := cheap.choose(3), 0.001 * number)
        dear.note(number := dear.choose(3), 0.01 * number**2)
    assert (cheap.choose(3), dear.choose(3)) == (3, 1)
    assert cheap.choose(0) == dear.choose(0) == 0
    # The other is tried again now and then.
    chosen = []
    for _ in range(200):
        chosen.append(number := dear.choose(3))
        dear.note(number, 0.001 * number)
    assert chosen[-1] == 3


def test_a_chat_has_a_step_after_every_step_of_side_calls_alone() -> None:
    """However cheap those are: a token of a chat waits for one of them."""
    scheduler = Scheduler(SequenceCache(128, 8), 16, 4, side_call_share=0.8)
    chat, *side_calls = request("chat", 5, 500), *(request(f"s{n}", 900, kind="side_call") for n in range(3))
    submit(scheduler, chat, *side_calls)
    plans = [step(scheduler, chat, *side_calls, seconds=lambda plan: 0.001) for _ in range(100)]
    is_chat_in = ["chat" in ids(plan) for plan in plans]
    assert all(first or second for first, second in pairwise(is_chat_in))
    assert is_chat_in.count(False) > 40


def test_a_side_call_changes_no_chunk_of_a_chat() -> None:
    def borders(*others: Sequence) -> list[tuple[int, int]]:
        scheduler = make(num_pages=128, chunk_tokens=256, target_s=0.15)
        submit(scheduler, *others)
        for _ in range(6 if others else 0):
            step(scheduler, *others, seconds=cost)
        chat = request("chat", 1000)
        submit(scheduler, chat)
        plans = []
        while chat.phase != "decode":
            plans.append(step(scheduler, chat, *others, seconds=cost))
        return [(part.start, part.end) for plan in plans for part in plan.segments if part.sequence_id == "chat"]

    assert borders(request("side", 30, 500, kind="side_call")) == borders()


def test_a_chunk_beside_a_stream_is_as_long_as_its_time_allows() -> None:
    chunk = ChunkSize(256, 0.15)
    for seconds, expected in (
        (0.05, 64),
        (0.09, 64),
        (0.05, 128),
        (0.2, 64),
        (0.2, 32),
        (0.2, 16),
        (9.0, 16),
        (0.1, 16),
    ):
        chunk.note(chunk.tokens, seconds)
        assert chunk.tokens == expected
    chunk.note(3, 0.001)
    assert chunk.tokens == 16
    assert ChunkSize(256, None).tokens == 256
    assert ChunkSize(8, 0.15).tokens == 8


def test_a_request_that_can_never_fit_is_refused_with_both_numbers() -> None:
    scheduler = make(num_pages=4)
    with pytest.raises(RequestError, match=r"260 tokens.*256"):
        scheduler.submit(request("long", 250, 10))
    assert scheduler.is_idle
    scheduler.submit(request("just", 250, 6))


def test_spare_pages_are_those_of_an_order_in_which_all_can_end() -> None:
    first, second = Holding((0, 1), None, 4), Holding((2,), None, 5)
    assert spare_pages(6, [first, second]) == [1, 1]
    assert spare_pages(4, [first, second]) == [-1, -1]
    # A page that both hold comes back with the second only, and the first to write to it needs a copy.
    assert spare_pages(6, [Holding((0, 1), 1, 4), Holding((1, 2), None, 2)]) == [0, 4]


def test_long_allowances_that_nobody_uses_do_not_wait_for_each_other() -> None:
    scheduler = make(num_pages=16)
    chats = [request(name, 100, 800) for name in "ab"]
    submit(scheduler, *chats)
    scheduler.admit()
    assert scheduler.num_running == 2


def test_a_later_chat_waits_for_pages_and_none_is_lost() -> None:
    scheduler = make(num_pages=16, chunk_tokens=64)
    chats = [request(name, 100, 850) for name in "ab"]
    submit(scheduler, *chats)
    while not scheduler.is_idle:
        step(scheduler, *chats)
    assert [len(chat.generated_ids) for chat in chats] == [850, 850]


def test_a_chat_takes_the_pages_of_side_calls_which_go_on_later() -> None:
    scheduler = make(num_pages=16, chunk_tokens=64)
    side_call = request("side", 300, 200, kind="side_call")
    submit(scheduler, side_call)
    for _ in range(40):
        step(scheduler, side_call)
    answer = list(side_call.generated_ids)
    assert len(answer) > 10
    chat = request("chat", 600, 300)
    submit(scheduler, chat)
    assert [sequence.sequence_id for sequence in scheduler.admit()] == ["chat"]
    assert (side_call.was_paused, side_call.num_computed) == (True, 0)
    while chat.phase != "ended":
        step(scheduler, chat, side_call)
    assert side_call.generated_ids == answer
    admitted = scheduler.admit()
    assert admitted == [], "it was admitted before"
    while not scheduler.is_idle:
        step(scheduler, side_call)
    assert len(side_call.generated_ids) == 200


def test_paused_side_calls_go_on_in_their_order() -> None:
    scheduler = make(num_pages=16)
    side_calls = [request(f"s{number}", 300, 20, kind="side_call") for number in range(3)]
    submit(scheduler, *side_calls)
    for _ in range(40):
        step(scheduler, *side_calls)
    chat = request("chat", 600, 400)
    submit(scheduler, chat)
    assert scheduler.admit() == [chat]
    assert all(side_call.was_paused for side_call in side_calls), "the chat may need every page"
    assert [name for name in scheduler._running if name != "chat"] == ["s0", "s1", "s2"]
    while not scheduler.is_idle:
        step(scheduler, chat, *side_calls)
    assert [len(sequence.generated_ids) for sequence in (chat, *side_calls)] == [400, 20, 20, 20]


def test_side_calls_are_not_paused_for_a_chat_that_finds_no_room_anyway() -> None:
    scheduler = make(num_pages=16, max_running=2)
    first, side_call, second = request("a", 100), request("side", 100, kind="side_call"), request("b", 900, 100)
    submit(scheduler, first, side_call)
    scheduler.admit()
    submit(scheduler, second, request("later", 10, kind="side_call"))
    assert scheduler.admit() == [second]
    assert side_call.phase == "waiting"
    third = request("c", 10)
    submit(scheduler, third)
    assert scheduler.admit() == []
    assert scheduler.num_running == 2


def test_the_next_turn_finds_all_of_the_one_that_still_closes() -> None:
    scheduler = make()
    first, other = request("a", 20, 5), request("b", 300, 50)
    submit(scheduler, first, other)
    while first.phase != "closing":
        step(scheduler, first, other)
    second = Sequence("c", (*first.tokens(0, first.num_tokens), 9, 9), max_new_tokens=2)
    submit(scheduler, second)
    while second.phase == "waiting":
        step(scheduler, first, other, second)
    assert second.num_cached == first.num_tokens


def test_side_calls_leave_nothing_and_may_read_what_a_chat_left() -> None:
    cache = SequenceCache(64, 8)
    scheduler = Scheduler(cache, 32, 4)
    chat = Sequence("chat", tuple(range(40)), save_points=frozenset({37}), max_new_tokens=2)
    submit(scheduler, chat)
    while not scheduler.is_idle:
        step(scheduler, chat)
    num_saved, num_pages = cache.num_saved, cache.num_pages_used
    side_call = Sequence(
        "side", (*range(37), 900, 901), save_points=frozenset({38}), kind="side_call", max_new_tokens=3
    )
    submit(scheduler, side_call)
    while not scheduler.is_idle:
        step(scheduler, side_call)
    assert side_call.num_cached == 37
    assert (cache.num_saved, cache.num_pages_used) == (num_saved, num_pages)


class Traffic:
    """Random requests: new ones, edits and forks of what was said before, cancelled and finished at any time."""

    def __init__(self, seed: int, num_pages: int, num_rows: int) -> None:
        self.rng = random.Random(seed)
        self.cache = SequenceCache(num_pages, num_rows)
        self.scheduler = Scheduler(self.cache, 48, 4, chunk_target_s=0.15)
        self.live: dict[str, Sequence] = {}
        self.texts: list[tuple[int, ...]] = [()]
        self.num_ended = self.num_started = 0

    def run(self, num_operations: int) -> None:
        for number in range(num_operations):
            operation = self.rng.choice((self.start, self.start, self.edit, self.fork, self.cancel, self.finish))
            operation(f"r{number}")
            self.scheduler.check_integrity()
            for _ in range(self.rng.randrange(4)):
                self.step()

    def start(self, name: str, base: tuple[int, ...] = ()) -> None:
        if len(self.live) > 8:
            return
        prompt = base + tuple(self.rng.randrange(3) for _ in range(self.rng.randint(1, 90)))
        most = self.cache.num_pages * 64 - len(prompt)
        if most < 1:
            return
        save_points = frozenset(self.rng.sample(range(1, len(prompt) + 1), min(2, len(prompt))))
        kind: RequestKind = self.rng.choice(("chat", "side_call"))
        sequence = Sequence(name, prompt, save_points, kind=kind, max_new_tokens=self.rng.choice((1, 5, 60, most)))
        sequence.max_new_tokens = min(sequence.max_new_tokens or most, most)
        self.scheduler.submit(sequence)
        self.live[name] = sequence
        self.num_started += 1

    def edit(self, name: str) -> None:
        text = self.rng.choice(self.texts)
        self.start(name, text[: self.rng.randint(0, len(text))])

    def fork(self, name: str) -> None:
        self.start(name, self.rng.choice(self.texts))

    def cancel(self, _: str) -> None:
        if self.live:
            name = self.rng.choice(sorted(self.live))
            self.end(name)

    def finish(self, _: str) -> None:
        decoding = sorted(name for name, sequence in self.live.items() if sequence.phase == "decode")
        if decoding:
            self.end(self.rng.choice(decoding))

    def end(self, name: str) -> None:
        sequence = self.live.pop(name)
        self.texts = [*self.texts[-20:], sequence.tokens(0, sequence.num_tokens)[:300]]
        self.scheduler.finish(name)
        self.num_ended += 1

    def step(self) -> None:
        self.scheduler.admit()
        plan = self.scheduler.plan()
        if plan is None:
            assert self.scheduler.is_idle, "something waits and nothing runs"
            return
        self.scheduler.complete(plan)
        self.scheduler.note_duration(plan, self.rng.uniform(0.01, 0.3))
        for segment in plan.segments:
            sequence = self.live.get(segment.sequence_id)
            if sequence is not None and segment.logit_offsets:
                sequence.generated_ids.append(self.rng.randrange(3))
                if len(sequence.generated_ids) == sequence.max_new_tokens:
                    self.end(segment.sequence_id)
        self.scheduler.check_integrity()


@pytest.mark.parametrize(("seed", "num_pages", "num_rows"), [(1, 9, 4), (2, 16, 5), (3, 40, 12)])
def test_random_operations_leave_no_page_and_no_row_behind(seed: int, num_pages: int, num_rows: int) -> None:
    traffic = Traffic(seed, num_pages, num_rows)
    traffic.run(2000)
    for _ in range(100_000):
        if traffic.scheduler.is_idle:
            break
        traffic.step()
    assert traffic.scheduler.is_idle
    assert not traffic.live
    assert traffic.num_ended == traffic.num_started > 300
    traffic.cache.forget_saved()
    assert traffic.cache.num_pages_used == traffic.cache.num_rows_used == 0
    traffic.scheduler.check_integrity()
