"""All conversations: search as you type, open, rename, pin, delete, undo. Its answer is the one to open, or None."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.errors import HotslotError
from app.messages import Conversation
from app.sanitize import clean
from app.store.conversations import SearchHit, Store
from app.tui.display import MUTED, shown
from app.tui.screens.dialogs import AskTextScreen, ConfirmScreen

MOST_LISTED = 200


@dataclass(frozen=True)
class ConversationChoice:
    """What the user did: opened one (or none), and what became of others before that."""

    opened_id: str | None
    deleted_ids: tuple[str, ...]
    new_titles: Mapping[str, str]


class ConversationsScreen(ModalScreen[ConversationChoice]):
    """The list under its search line; the search line keeps the focus, the arrows move in the list."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back"),
        Binding("enter", "open", "Open", priority=True),
        Binding("ctrl+e", "rename", "Rename", priority=True),
        Binding("ctrl+d,delete", "delete", "Delete", priority=True),
        Binding("ctrl+t", "pin", "Pin", priority=True),
        Binding("ctrl+z", "undo", "Undo", priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
    ]

    def __init__(self, store: Store, query: str = "", current_id: str | None = None) -> None:
        super().__init__(classes="panel-screen")
        self._store = store
        self._first_query = query
        self._current_id = current_id
        self._listed: list[Conversation] = []
        self._listed_query: str | None = None
        self._hits: dict[str, SearchHit] = {}
        """The best place of each conversation that the search found."""
        self._deleted: list[str] = []
        self._new_titles: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel-box") as box:
            box.border_title = Content("Chats")
            box.border_subtitle = Content("Enter open · ^E rename · ^T pin · ^D delete · ^Z undo · Esc back")
            yield Input(self._first_query, placeholder="Search titles and messages", compact=True)
            yield OptionList(markup=False, compact=True)
            yield Static("", markup=False, classes="empty")

    async def on_mount(self) -> None:
        self.query_one(Input).focus()
        await self._list()

    @on(Input.Changed)
    async def search_changed(self) -> None:
        await self._list()

    async def _list(self, keep_index: int | None = None) -> None:
        options = self.query_one(OptionList)
        empty = self.query_one(".empty", Static)
        try:
            self._listed_query = query = self.query_one(Input).value
            found = await self._store.run(self._store.list_conversations, MOST_LISTED + 1, query)
            self._listed = found[:MOST_LISTED]
            hits = await self._store.run(self._store.search, query, MOST_LISTED) if query.strip() else []
            self._hits = {hit.conversation_id: hit for hit in reversed(hits)}
        except HotslotError as error:
            self._listed = found = []
            empty.update(shown(str(error)))
        else:
            is_search = bool(self.query_one(Input).value.strip())
            empty.update(Content(self._remark(is_search, len(found))))
        empty.display = not 0 < len(found) <= MOST_LISTED
        options.display = bool(self._listed)
        options.clear_options()
        options.add_options([Option(self._row(conversation)) for conversation in self._listed])
        if self._listed:
            options.highlighted = min(keep_index or 0, len(self._listed) - 1)

    def _remark(self, is_search: bool, num_found: int) -> str:
        """Said under a list that is empty or not complete."""
        if num_found > MOST_LISTED:
            how = "more words" if is_search else "words typed above"
            return f"Only the first {MOST_LISTED} are listed; {how} find the rest."
        return "Nothing found." if is_search else "No conversations yet."

    def _row(self, conversation: Conversation) -> Content:
        mark = "● " if conversation.id == self._current_id else "  "
        when = age_text(time.time() - conversation.updated_at)
        pin = "▲ " if conversation.pinned_at is not None else ""
        title = shown(conversation.title or "Untitled")
        row = Content.assemble((mark, "$text-accent"), (pin, "$text-warning"), title, (f"  {when}", MUTED))
        hit = self._hits.get(conversation.id)
        return row if hit is None else row + Content("\n    ") + excerpt_content(hit)

    @property
    def _chosen(self) -> Conversation | None:
        index = self.query_one(OptionList).highlighted
        return self._listed[index] if index is not None and index < len(self._listed) else None

    # ---- actions

    def action_move(self, step: int) -> None:
        options = self.query_one(OptionList)
        if self._listed:
            at = options.highlighted or 0
            options.highlighted = min(max(at + step, 0), len(self._listed) - 1)

    def _after_typing(self, act: Callable[[Conversation], Awaitable[None] | None]) -> None:
        """`act` on the chosen one of the list that the search line asks for, with all keys typed before this one."""

        async def once_listed() -> None:
            if self._listed_query != self.query_one(Input).value:
                await self._list()
            if (chosen := self._chosen) is not None and (acting := act(chosen)) is not None:
                await acting

        # The line takes its keys in a queue of its own, which this key did not go through.
        self.query_one(Input).call_later(self.call_later, once_listed)

    @on(OptionList.OptionSelected)
    def action_open(self) -> None:
        self._after_typing(lambda chosen: self._answer(chosen.id))

    def action_leave(self) -> None:
        self._answer(None)

    def _answer(self, opened_id: str | None) -> None:
        self.dismiss(ConversationChoice(opened_id, tuple(self._deleted), self._new_titles))

    def action_rename(self) -> None:
        self._after_typing(self._ask_title)

    def _ask_title(self, chosen: Conversation) -> None:
        async def rename(title: str | None) -> None:
            if title is None:
                return
            clean_title = shown(title).plain
            if await self._try(self._store.rename, chosen.id, clean_title):
                self._new_titles[chosen.id] = clean_title
                await self._list(self.query_one(OptionList).highlighted)

        self.app.push_screen(AskTextScreen("New title", chosen.title), rename)

    def action_delete(self) -> None:
        self._after_typing(self._ask_whether_to_delete)

    def _ask_whether_to_delete(self, chosen: Conversation) -> None:
        async def delete(is_sure: bool | None) -> None:
            if is_sure and await self._try(self._store.delete, chosen.id):
                self._deleted.append(chosen.id)
                self.notify("Deleted; Ctrl+Z brings it back.", markup=False)
                await self._list(self.query_one(OptionList).highlighted)

        question = f"Delete “{chosen.title or 'Untitled'}” with all its messages?"
        self.app.push_screen(ConfirmScreen(question, "Delete"), delete)

    def action_pin(self) -> None:
        self._after_typing(self._pin)

    async def _pin(self, chosen: Conversation) -> None:
        if await self._try(self._store.pin if chosen.pinned_at is None else self._store.unpin, chosen.id):
            await self._list()
            ids = [conversation.id for conversation in self._listed]
            if chosen.id in ids:
                self.query_one(OptionList).highlighted = ids.index(chosen.id)

    async def action_undo(self) -> None:
        """Bring back what was deleted last."""
        try:
            back = await self._store.run(self._store.undelete_last)
        except HotslotError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        if back.id in self._deleted:
            self._deleted.remove(back.id)
        await self._list(self.query_one(OptionList).highlighted)

    async def _try(self, change: Callable[..., None], *values: str) -> bool:
        try:
            await self._store.run(change, *values)
        except HotslotError as error:
            self.notify(str(error), severity="error", markup=False)
            return False
        return True


def excerpt_content(hit: SearchHit) -> Content:
    """The text around the found words on one line, the words marked."""
    line = hit.excerpt.replace("\n", " ")
    parts: list[Content] = []
    end = 0
    for start, stop in hit.matches:
        parts += [shown_part(line[end:start], MUTED), shown_part(line[start:stop], "$text-accent bold")]
        end = stop
    return Content("").join([*parts, shown_part(line[end:], MUTED)])


def shown_part(text: str, style: str) -> Content:
    """A piece of one line, its spaces kept."""
    return Content.styled(clean(text).replace("\n", " ").replace("\t", " "), style)


def age_text(seconds: float) -> str:
    """How long ago, roughly."""
    minutes = int(max(seconds, 0.0) // 60)
    if minutes < 1:
        return "just now"
    if minutes < 60:
        return f"{minutes} min ago"
    if minutes < 24 * 60:
        return f"{minutes // 60} h ago"
    days = minutes // (24 * 60)
    return "yesterday" if days == 1 else f"{days} days ago"
