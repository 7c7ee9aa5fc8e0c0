"""The chat: transcript, queue, prompt, figures. Owns what is on this screen; what is said lives in `ChatSession`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message as TextualMessage
from textual.screen import Screen
from textual.widgets import Footer, TextArea

from app.chat.events import TurnEvents, UserMessageStored
from app.chat.session import ChatSession
from app.errors import HotslotError, SettingsError
from app.library import LocalModel, list_models, resolve_model
from app.locations import Locations
from app.messages import Conversation, Message
from app.settings import Settings
from app.store.conversations import Store
from app.tui.actions import SlashCommand, bindings_of, complete_slash, parse_slash
from app.tui.bridge import TurnInbox, TurnOver
from app.tui.clipboard import copy_text
from app.tui.display import shown
from app.tui.screens.conversations import ConversationChoice, ConversationsScreen
from app.tui.screens.models import ModelsScreen
from app.tui.screens.settings import SettingsScreen
from app.tui.settings_keeper import keep_changes
from app.tui.themes import THEME_NAMES
from app.tui.turn_view import TurnView
from app.tui.widgets.code_block import CodeBlock
from app.tui.widgets.message_blocks import AnswerBlock, CopyAsked, NoticeBlock, UserBlock
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.queue_view import QueueView
from app.tui.widgets.status_bar import StatusBar
from app.tui.widgets.transcript import Transcript
from app.tui.widgets.welcome import MOST_RECENT, Welcome

THINKING_ORDER = {"auto": "on", "on": "off", "off": "auto"}


@dataclass(frozen=True)
class AwaitedConversation:
    """Where the session goes next; None is a new chat."""

    conversation: Conversation | None


class ChatScreen(Screen[None]):
    """The one screen that is always there."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("chat")]

    class TurnAdvanced(TextualMessage):
        """Events of a turn wait to be drawn."""

        def __init__(self, inbox: TurnInbox, view: TurnView) -> None:
            super().__init__()
            self.inbox = inbox
            self.view = view

    class SettingsChanged(TextualMessage):
        """These settings hold from now on."""

        def __init__(self, settings: Settings) -> None:
            super().__init__()
            self.settings = settings

    def __init__(
        self,
        session: ChatSession,
        store: Store,
        locations: Locations,
        notices: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.session = session
        self._store = store
        self._locations = locations
        self._notices = notices
        self._is_busy = False
        """A turn or a start of the engine runs, or its last events are not drawn yet."""
        self._is_answering = False
        """What runs is an answer, which can be stopped."""
        self._is_stale = False
        """Options of loading changed since the engine was asked to start."""
        self._num_code_copies = 0
        self._awaited: AwaitedConversation | None = None
        """Shown already; the session goes there once the engine has started."""
        self._inbox: TurnInbox | None = None
        """Of the turn that runs."""

    def compose(self) -> ComposeResult:
        yield Transcript()
        yield QueueView()
        yield Prompt()
        yield StatusBar()
        yield Footer(show_command_palette=False, compact=True)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    @property
    def queue(self) -> QueueView:
        return self.query_one(QueueView)

    @property
    def status(self) -> StatusBar:
        return self.query_one(StatusBar)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that would do nothing now are not offered."""
        return self._is_answering if action == "stop" else True

    @property
    def is_busy(self) -> bool:
        return self._is_busy

    # ---- start

    async def on_mount(self) -> None:
        self.prompt.focus()
        self.status.model = self.session.model_path.name
        await self._show_conversation()
        for notice in self._notices:
            await self.transcript.add(NoticeBlock(notice, "warning"))
        self.call_after_refresh(self._warm_up)

    def _warm_up(self) -> None:
        self._is_stale = False
        self._run(self.session.warm_up(), TurnView(self.transcript, self.status, None))

    async def _show_conversation(self, messages: Sequence[Message] | None = None) -> None:
        messages = self.session.messages if messages is None else messages
        await self.transcript.show_messages(messages)
        if not messages:
            await self.transcript.add(Welcome(self._about(), self._recent()))
        self._show_title()

    def _about(self) -> str:
        return f"Chat with {self.session.model_path.name}. Everything stays on this machine."

    def _recent(self) -> list[Conversation]:
        try:
            return self._store.list_conversations(MOST_RECENT)
        except HotslotError as error:
            self._say(str(error), "error")
            return []

    def _show_title(self) -> None:
        conversation = self.session.conversation if self._awaited is None else self._awaited.conversation
        title = shown(conversation.title if conversation is not None else "New chat")
        self.prompt.border_title = title if title.plain else Content("Untitled")
        hints = []
        if not self.transcript.is_following:
            hints.append("↓ Ctrl+End newest")
        if self._is_answering:
            hints.append("Esc stops")
        elif self.queue.texts:
            hints.append("Enter sends the queued message")
        self.prompt.border_subtitle = Content(" · ".join(hints)) if hints else None

    # ---- sending

    @on(Prompt.Submitted)
    async def prompt_submitted(self, event: Prompt.Submitted) -> None:
        command = parse_slash(event.text)
        if command is not None:
            await self._obey(command)
        elif not event.text.strip():
            if self.queue.texts and not self._is_busy:
                await self._send(self.queue.pop())
        elif self._is_busy or self.queue.texts:
            self.queue.add(self.prompt.take())
            if not self._is_busy:
                await self._send(self.queue.pop())
        else:
            await self._send(self.prompt.take())

    async def _obey(self, command: SlashCommand | str) -> None:
        if isinstance(command, str):
            self._say(f"There is no command /{command}; /help lists them. Put a space before it to send it.", "warning")
            return
        self.prompt.take()
        name = command.action.name
        if name == "conversations":
            self.action_conversations(command.argument)
        elif command.action.scope == "app":
            await self.app.run_action(name)
        else:
            await self.run_action(name)

    async def _send(self, text: str) -> None:
        await self.query(Welcome).remove()
        await self.transcript.add(UserBlock(text))
        await self._answer(self.session.send(text))

    async def _answer(self, turn: TurnEvents) -> None:
        loaded = self.session.loaded
        name = loaded.model_name if loaded is not None else self.session.model_path.name
        block = AnswerBlock(name, are_reasonings_folded=self.transcript.is_reasoning_folded)
        await self.transcript.add(block)
        self.transcript.scroll_end(animate=False)
        self._num_code_copies = 0
        self._run(turn, TurnView(self.transcript, self.status, block))

    def _run(self, turn: TurnEvents, view: TurnView) -> None:
        self._is_busy = True
        self._is_answering = view.answer is not None
        self.status.activity = "waiting" if view.answer is not None else ""
        inbox = self._inbox = TurnInbox(lambda: self.post_message(self.TurnAdvanced(inbox, view)))
        self.run_worker(inbox.run(turn), group="turn", name="turn")
        self._show_title()
        self.refresh_bindings()

    async def on_chat_screen_turn_advanced(self, message: TurnAdvanced) -> None:
        for event in message.inbox.take():
            if isinstance(event, TurnOver):
                await self._turn_over(event, message.view)
            else:
                await message.view.show(event)
            if isinstance(event, UserMessageStored):
                self._show_title()
        self.call_after_refresh(message.inbox.note_drawn)

    async def _turn_over(self, over: TurnOver, view: TurnView) -> None:
        self._is_busy = self._is_answering = False
        self._inbox = None
        self.status.activity = ""
        self.status.load_fraction = None
        if over.refusal:
            if view.answer is not None:
                await view.answer.remove()
            await self.transcript.add(NoticeBlock(over.refusal, "error"))
        self._enter_awaited()
        await self.transcript.sync(self.session.messages)
        is_held = bool(over.refusal) or view.outcome in ("cancelled", "failed")
        if self.queue.texts and not is_held:
            await self._send(self.queue.pop())
        elif self._is_stale:
            self._warm_up()
        self._show_title()
        self.refresh_bindings()

    # ---- the queue

    @on(QueueView.EditAsked)
    def queued_edit_asked(self, event: QueueView.EditAsked) -> None:
        self._edit_queued(event.index)

    @on(QueueView.RemoveAsked)
    def queued_remove_asked(self, event: QueueView.RemoveAsked) -> None:
        self.queue.pop(event.index)
        self._show_title()

    def action_edit_queued(self) -> None:
        if self.queue.texts:
            self._edit_queued(len(self.queue.texts) - 1)

    def _edit_queued(self, index: int) -> None:
        draft = self.prompt.text
        text = self.queue.pop(index)
        self.prompt.set_text(f"{text}\n{draft}" if draft.strip() else text)
        self.prompt.focus()
        self._show_title()

    # ---- the answer

    async def action_stop(self) -> None:
        if self._is_answering:
            self.status.activity = "stopping"
            await self.session.cancel()

    async def action_interrupt(self) -> None:
        """Ctrl+C: what people expect of it depends on what there is."""
        if selected := self.get_selected_text():
            await self._copy(selected, "selection")
        elif self._is_answering:
            await self.action_stop()
        elif self.prompt.text:
            self.prompt.take()
        else:
            self._say("Ctrl+Q quits.")

    async def action_regenerate(self) -> None:
        if self._refuse_while_running():
            return
        if not any(message.role == "user" for message in self.session.messages):
            self._say("There is nothing to answer yet.", "warning")
            return
        await self.transcript.drop_last_answer()
        await self._answer(self.session.regenerate())

    async def action_copy_answer(self) -> None:
        answers = [message for message in self.session.messages if message.role == "assistant" and message.content]
        growing = [block for block in self.transcript.answers if block.text]
        if self._is_busy and growing:
            await self._copy(growing[-1].text, "answer so far")
        elif answers:
            await self._copy(answers[-1].content, "answer")
        else:
            self._say("There is no answer to copy yet.", "warning")

    async def action_copy_code(self) -> None:
        blocks = list(self.transcript.query(CodeBlock))
        if not blocks:
            self._say("There is no code block to copy.", "warning")
            return
        index = self._num_code_copies % len(blocks)
        self._num_code_copies += 1
        await self._copy(blocks[-1 - index].code, f"code block {len(blocks) - index} of {len(blocks)}")

    @on(CopyAsked)
    async def copy_asked(self, event: CopyAsked) -> None:
        await self._copy(event.text, event.what)

    @on(CodeBlock.CopyAsked)
    async def code_copy_asked(self, event: CodeBlock.CopyAsked) -> None:
        await self._copy(event.code, "code block")

    async def _copy(self, text: str, what: str) -> None:
        await copy_text(self.app, text)
        self._say(f"Copied {what} ({len(text)} characters).")

    def action_toggle_reasoning(self) -> None:
        self.transcript.fold_reasoning(not self.transcript.is_reasoning_folded)

    def action_page_up(self) -> None:
        self.transcript.scroll_page_up(animate=False)
        if self.transcript.scroll_y <= 0:
            self.run_worker(self.transcript.show_earlier(), group="earlier", exclusive=True)

    def action_page_down(self) -> None:
        self.transcript.scroll_page_down(animate=False)

    def action_go_to_end(self) -> None:
        self.transcript.scroll_end(animate=False)

    @on(Transcript.EndLeft)
    def end_left(self) -> None:
        self._show_title()

    # ---- conversations and models

    async def action_new_chat(self) -> None:
        await self._go_to(None)

    def action_conversations(self, query: str = "") -> None:
        conversation = self.session.conversation
        screen = ConversationsScreen(self._store, query, conversation.id if conversation is not None else None)
        self.app.push_screen(screen, self._conversation_chosen)

    async def _conversation_chosen(self, choice: ConversationChoice | None) -> None:
        if choice is None:
            return
        current = self.session.conversation
        if current is not None and current.id in choice.deleted_ids and not self.session.is_busy:
            self.session.new()
            await self._show_conversation()
        if choice.opened_id is not None:
            await self._go_to(choice.opened_id)
        elif current is not None and current.id in choice.new_titles:
            self.session.rename(choice.new_titles[current.id])
            self._show_title()

    @on(Welcome.ChatChosen)
    async def chat_chosen(self, event: Welcome.ChatChosen) -> None:
        await self._go_to(event.conversation_id)

    async def _go_to(self, conversation_id: str | None) -> None:
        """Open a conversation, or begin one. While the engine starts it is shown, and opened once that is over."""
        if self._is_answering:
            self._refuse_while_running()
            return
        try:
            if self._is_busy:
                conversation = None if conversation_id is None else self._store.conversation(conversation_id)
                messages = [] if conversation is None else self._store.branch(conversation.head_id)
                self._awaited = AwaitedConversation(conversation)
                await self._show_conversation(messages)
            else:
                self._enter(conversation_id)
                await self._show_conversation()
        except HotslotError as error:
            self._say(str(error), "error")
        self.prompt.focus()

    def _enter(self, conversation_id: str | None) -> None:
        if conversation_id is None:
            self.session.new()
        else:
            self.session.open(conversation_id)

    def _enter_awaited(self) -> None:
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            try:
                self._enter(awaited.conversation.id if awaited.conversation is not None else None)
            except HotslotError as error:
                self._say(str(error), "error")

    def action_models(self) -> None:
        models = list_models(self._locations)
        self.app.push_screen(ModelsScreen(models, self.session.model_path), self._model_chosen)

    def _model_chosen(self, model: LocalModel | None) -> None:
        if model is None or model.path == self.session.model_path:
            return
        self._use_model(model.path)
        self._change_settings(replace(self.session.settings, model=model.name))
        self._say(f"{model.name} answers from the next message on.")

    def _use_model(self, path: Path) -> None:
        self.session.set_model(path)
        self.status.model = path.name

    def _refuse_while_running(self) -> bool:
        if self._is_busy:
            self._say("Wait for the answer, or press Esc to stop it.", "warning")
        return self._is_busy

    # ---- settings

    def action_settings(self) -> None:
        screen = SettingsScreen(self.session.settings, THEME_NAMES, self.session.stats, self.session.loaded)
        self.app.push_screen(screen, self._settings_chosen)

    def _settings_chosen(self, settings: Settings | None) -> None:
        if settings is None or settings == self.session.settings:
            return
        if settings.model != self.session.settings.model:
            try:
                self._use_model(resolve_model(settings.model, self._locations))
            except HotslotError as error:
                self._say(str(error), "error")
                settings = replace(settings, model=self.session.settings.model)
        self._change_settings(settings)
        self._say("Settings saved.")

    def action_toggle_thinking(self) -> None:
        settings = self.session.settings
        thinking = THINKING_ORDER[settings.thinking]
        self._change_settings(replace(settings, thinking=thinking))  # type: ignore[arg-type]
        words = {"auto": "as the model likes", "on": "on", "off": "off"}[thinking]
        self._say(f"Thinking: {words}, from the next message on.")

    def action_toggle_overlap(self) -> None:
        settings = self.session.settings
        self._change_settings(replace(settings, overlap=not settings.overlap))
        stats = self.session.stats
        reason = ""
        if not settings.overlap and stats is not None and stats.overlap_requested and stats.overlap_reason:
            reason = f" It does not run: {stats.overlap_reason}."
        self._say(f"Overlap {'off' if settings.overlap else 'on'}; the engine restarts.{reason}")

    def action_switch_policy(self) -> None:
        settings = self.session.settings
        policy = "lru" if settings.policy == "rule" else "rule"
        self._change_settings(replace(settings, policy=policy))  # type: ignore[arg-type]
        self._say(f"Slot policy {policy}; the engine restarts.")

    def set_theme_name(self, name: str) -> None:
        """Use and keep this theme."""
        self._change_settings(replace(self.session.settings, theme=name))

    def _change_settings(self, settings: Settings) -> None:
        """Use the settings and keep what changed, leaving aside what only this run was told."""
        before = self.session.settings
        self.session.apply_settings(settings)
        try:
            keep_changes(self._locations.config_file, before, settings)
        except SettingsError as error:
            self._say(str(error), "error")
        self.app.post_message(self.SettingsChanged(settings))
        self._is_stale = True
        if not self._is_busy:
            self._warm_up()

    async def on_unmount(self) -> None:
        await self.session.close()

    # ---- keys and words

    @on(TextArea.Changed)
    def prompt_changed(self) -> None:
        if self._inbox is not None:
            self._inbox.note_key()
        matches = complete_slash(self.prompt.text)
        if matches and self.prompt.text != "":
            names = "  ".join(f"/{action.command}" for action in matches)
            self.prompt.border_subtitle = Content(f"{names} · Tab completes")
        elif self.prompt.was_completing:
            self._show_title()
        self.prompt.was_completing = bool(matches)

    def on_key(self, event: events.Key) -> None:
        """Typing goes into the prompt, wherever the focus is."""
        if event.is_printable and event.character and not self.prompt.has_focus:
            event.stop()
            self.prompt.focus()
            self.prompt.insert(event.character)

    def _say(self, text: str, severity: str = "information") -> None:
        self.notify(shown(text).plain, severity=severity, markup=False)  # type: ignore[arg-type]
