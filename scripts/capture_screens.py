"""Draws the main screens into assets/screens/*.svg, for the README. A scripted engine answers: the same each time."""

import argparse
import asyncio
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from textual.pilot import Pilot

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from app.chat.session import ChatSession  # noqa: E402  (the repository has to be on the path first)
from app.engine import ProgressCallback  # noqa: E402
from app.environment import Environment  # noqa: E402
from app.locations import Locations  # noqa: E402
from app.messages import Message  # noqa: E402
from app.settings import Settings, ThemeName  # noqa: E402
from app.store.conversations import Store  # noqa: E402
from app.tui.app import HotslotApp  # noqa: E402
from runtime.options import EngineOptions  # noqa: E402
from runtime.protocol import EngineStats, Loaded  # noqa: E402
from tests.support.scripted_engine import Hang, Say, ScriptedEngine, Step  # noqa: E402

Act = Callable[[Pilot[None], HotslotApp], Awaitable[None]]

QUESTION = "How do expert slots work?"
REASONING = "They ask about slots. Keep it short, give the idea, then a sketch in code."
ANSWER = """A **slot** is a place for one expert in fast memory. All experts wait in host memory; the router decides \
which few a token needs.

1. A routed expert that has a slot is used at once: a *hit*.
2. One that has none takes the slot of the expert least likely to be needed: a *miss*, one copy of a record.

```python
def ensure(expert: int) -> int:
    if expert in slot_of:
        return slot_of[expert]
    slot = policy.choose_victim()
    copy(store.record(expert), slots[slot])
    return slot
```

| policy | keeps |
|---|---|
| `lru` | what was used last |
| `rule` | what the router leans towards |

The answer never depends on the number of slots, only the speed does.
"""


class ShownEngine(ScriptedEngine):
    """Figures that look like a running chat."""

    async def start(self, options: EngineOptions, on_progress: ProgressCallback | None = None) -> Loaded:
        return replace(await super().start(options, on_progress), model_name="demo")

    def make_stats(self, options: EngineOptions | None = None, num_tokens: int = 0) -> EngineStats:
        stats = super().make_stats(options, num_tokens)
        if not num_tokens:
            return replace(stats, model_name="demo", decode_tok_s=None, slot_hit_rate=None)
        rate = 38.0 + 4.0 * ((num_tokens * 7) % 5) / 5
        hit_rate = min(0.93, 0.6 + num_tokens / 400)
        used = min(stats.num_slots, 40 + num_tokens)
        return replace(stats, model_name="demo", decode_tok_s=rate, slot_hit_rate=hit_rate, num_slots_used=used)


def pieces(text: str, is_reasoning: bool = False) -> list[Step]:
    return [Say(text[start : start + 5], is_reasoning, 0.004) for start in range(0, len(text), 5)]


async def ask(pilot: Pilot[None], app: HotslotApp) -> None:
    await pilot.press(*QUESTION, "enter")
    while len(app.chat.transcript.answers) < 1 or "depends on" not in app.chat.transcript.answers[-1].text:
        await pilot.pause(0.05)
    await pilot.pause(0.5)


async def queue_more(pilot: Pilot[None], app: HotslotApp) -> None:
    await ask(pilot, app)
    await pilot.press("f3", *"And how fast is a miss?", "enter")
    await pilot.pause(0.5)


def press(*keys: str) -> Act:
    async def act(pilot: Pilot[None], app: HotslotApp) -> None:
        await pilot.pause(0.3)
        await pilot.press(*keys)
        await pilot.pause(0.6)

    return act


SCREENS: dict[str, tuple[Act, ThemeName, tuple[int, int]]] = {
    "chat": (ask, "hotslot-dark", (110, 44)),
    "chat-light": (ask, "hotslot-light", (110, 44)),
    "queue": (queue_more, "hotslot-dark", (80, 24)),
    "start": (press(), "hotslot-dark", (110, 24)),
    "conversations": (press("ctrl+o"), "hotslot-dark", (110, 24)),
    "settings": (press("ctrl+s"), "hotslot-dark", (110, 40)),
    "help": (press("f1"), "hotslot-dark", (110, 44)),
}


def without_downloads(svg: str) -> str:
    """The picture with the reader's own monospace font: nothing in it is fetched from anywhere."""
    svg = re.sub(r"@font-face\s*\{[^}]*\}\s*", "", svg)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "monospace")


def fill(store: Store) -> None:
    """Some conversations to list."""
    for title in (
        "Plans for the garden",
        "What is a gated delta net?",
        "Letter to the landlord",
        "Bread without yeast",
    ):
        conversation = store.create_conversation("demo", title)
        store.append_message(Message(conversation.id, None, "user", title))


async def capture(name: str, folder: Path) -> None:
    act, theme, size = SCREENS[name]
    with tempfile.TemporaryDirectory() as home:
        locations = Locations.resolve(Environment(Path(home), False, ""))
        store = Store.open(locations.database_file)
        fill(store)
        engine = ShownEngine((*pieces(REASONING, True), *pieces(ANSWER), Hang()))
        session = ChatSession(engine, store, Settings(theme=theme), Path("demo"))
        app = HotslotApp(session, store, locations)
        async with app.run_test(size=size) as pilot:
            await pilot.pause(0.3)
            await act(pilot, app)
            (folder / f"{name}.svg").write_text(
                without_downloads(app.export_screenshot(title="Hotslot")), encoding="utf-8"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "assets" / "screens")
    parser.add_argument("names", nargs="*", default=list(SCREENS))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        asyncio.run(capture(name, arguments.out))
        print(arguments.out / f"{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
