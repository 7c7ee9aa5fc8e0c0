"""The chat: transcript, queue, prompt, figures. Owns what is on this screen; what is said lives in `ChatSession`."""

import inspect
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message as TextualMessage
from textual.widgets import Footer, TextArea

from app.actions import SlashCommand, complete_slash, parse_slash
from app.chat.events import TurnEvents, UserMessageStored
from app.chat.session import ChatSession
from app.chat.toolset import ToolSet
from app.errors import HotslotError
from app.locations import Locations
from app.messages import Conversation
from app.store.conversations import Store
from app.tui.bindings import bindings_of
from app.tui.bridge import TurnInbox, TurnOver
from app.tui.display import shown
from app.tui.screens.chat_attaching import AttachControls
from app.tui.screens.chat_branches import BranchControls
from app.tui.screens.chat_conversations import ConversationControls
from app.tui.screens.chat_copying import CopyControls
from app.tui.screens.chat_model import SWITCHES, ModelControls
from app.tui.screens.chat_side_calls import SideCallControls
from app.tui.screens.chat_tools import ToolControls
from app.tui.turn_view import TurnView
from app.tui.widgets.answer_block import AnswerBlock
from app.tui.widgets.attachment_tray import AttachmentTray
from app.tui.widgets.message_blocks import NoticeBlock, UserBlock
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.queue_view import Draft, QueueView
from app.tui.widgets.status_bar import StatusBar
from app.tui.widgets.transcript import Transcript
from app.tui.widgets.welcome import MOST_RECENT, Welcome


class ChatScreen(
    ModelControls,
    CopyControls,
    AttachControls,
    ConversationControls,
    BranchControls,
    ToolControls,
    SideCallControls,
):
    """The one screen that is always there."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("chat")]

    class TurnAdvanced(TextualMessage):
        """Events of a turn wait to be drawn."""

        def __init__(self, inbox: TurnInbox, view: TurnView) -> None:
            super().__init__()
            self.inbox = inbox
            self.view = view

    class TitleChanged(TextualMessage):
        """A side call has named the open conversation."""

    def __init__(
        self,
        session: ChatSession,
        store: Store,
        locations: Locations,
        notices: tuple[str, ...] = (),
    ) -> None:
        super().__init__(session, store, locations)
        self.toolset = ToolSet(session, store)
        self._notices = notices
        self._inbox: TurnInbox | None = None
        """Of the turn that runs."""

    def apply_tools(self) -> None:
        """Offer the tools that the settings say."""
        try:
            self.toolset.apply(self.session.settings)
        except HotslotError as error:
            self.say(f"No tools are offered: {error}.", "error")

    def compose(self) -> ComposeResult:
        yield Transcript()
        yield QueueView()
        yield AttachmentTray()
        yield Prompt()
        yield StatusBar()
        yield Footer(show_command_palette=False, compact=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that would do nothing now are not offered."""
        can_step_back = self._is_busy or self._edited_id is not None or self.has_mark
        return can_step_back if action == "stop" else True

    # ---- start

    async def on_mount(self) -> None:
        self.apply_tools()
        self.follow_side_calls()
        self.follow_jobs()
        self.prompt.focus()
        self.session.side_jobs.on_title_changed = lambda: self.post_message(self.TitleChanged())
        self.status.model = self.session.model_path.name
        # Until the conversations are there; what is sent meanwhile waits in the queue.
        self._is_busy = True
        self.run_worker(self._begin(), group="begin")

    async def _begin(self) -> None:
        """What waits for the store, which another program may hold, and then for the engine."""
        await self.show_conversation()
        notices = [*self._notices, *([f"{self._store.problem} This chat is not saved."] if self._store.problem else ())]
        for notice in notices:
            await self.transcript.add(NoticeBlock(notice, "warning"))
        self.call_after_refresh(self.warm_up)

    def warm_up(self) -> None:
        """Start the engine as the settings say, unless it runs so already. Only while nothing else runs."""
        self._is_stale = False
        self.load(self.session.warm_up())

    def load(self, events: TurnEvents) -> None:
        self._run(events, TurnView(self.transcript, self.status, None))

    async def show_conversation(self) -> None:
        messages = self.session.messages
        await self.transcript.show_messages(messages)
        if not messages:
            await self.transcript.add(Welcome(self._about(), await self._recent()))
        self._edited_id = None
        self.clear_mark()
        await self.show_citations()

    def _about(self) -> str:
        return f"Chat with {self.session.model_path.name}. Everything stays on this machine."

    async def _recent(self) -> list[Conversation]:
        try:
            return await self._store.run(self._store.list_conversations, MOST_RECENT)
        except HotslotError as error:
            self.say(str(error), "error")
            return []

    def show_title(self) -> None:
        conversation = self.session.conversation
        title = shown(conversation.title if conversation is not None else "New chat")
        self.prompt.border_title = title if title.plain else Content("Untitled")
        hints = []
        if not self.transcript.is_following:
            hints.append("↓ Ctrl+End newest")
        if self._edited_id is not None:
            hints.append("Enter sends the edited message · Esc keeps it as it was")
        elif self.has_mark:
            hints.append("Alt+E edit · Alt+K fork · Alt+←→ versions · Esc unmark")
        if self._is_answering:
            hints.append("Esc stops")
        elif self._is_busy:
            hints.append("Esc stops loading")
        elif self.queue.texts:
            hints.append("Enter sends the queued message")
        elif self._is_unanswered:
            hints.append("Ctrl+R answers the last message")
        self.prompt.border_subtitle = Content(" · ".join(hints)) if hints else None

    @property
    def _is_unanswered(self) -> bool:
        """The chat ends with what the user said: a fork from there, or an app that was killed."""
        last = self.session.messages[-1:]
        return any(message.role == "user" and message.status == "complete" for message in last)

    @on(TitleChanged)
    def title_changed(self) -> None:
        self.show_title()

    # ---- sending

    @on(Prompt.Submitted)
    async def prompt_submitted(self, event: Prompt.Submitted) -> None:
        command = parse_slash(event.text)
        if command is not None:
            await self._obey(command, event.text)
        elif self._edited_id is not None:
            # An edited message belongs to its place: it does not wait in the queue.
            if self.refuse_while_running():
                self.prompt.give_back(event.text)
            else:
                await self.send_edit(event.text)
        elif not event.text.strip() and not self.attachments.files:
            if self.queue.texts and not self._is_busy:
                await self._send(self.queue.pop())
        elif self._is_busy or self.queue.texts:
            self.queue.add(Draft(event.text, self.attachments.take()))
            if not self._is_busy:
                await self._send(self.queue.pop())
        else:
            await self._send(Draft(event.text, self.attachments.take()))

    async def _obey(self, command: SlashCommand | str, text: str) -> None:
        if isinstance(command, str):
            self.say(f"There is no command /{command}; /help lists them. Put a space before it to send it.", "warning")
            self.prompt.give_back(text)
            return
        name, argument = command.action.name, command.argument
        if name in SWITCHES and argument and argument not in SWITCHES[name]:
            self.say(f"/{command.action.command} takes {command.action.argument}, not '{argument}'.", "warning")
            self.prompt.give_back(text)
            return
        if name in SWITCHES and argument:
            self.switch(name, argument)
        elif argument:
            # Not `run_action`: it would read the user's words as Python.
            done = getattr(self, f"action_{name}")(argument)
            if inspect.isawaitable(done):
                await done
        elif command.action.scope == "app":
            await self.app.run_action(name)
        else:
            await self.run_action(name)

    async def _send(self, draft: Draft) -> None:
        await self.query(Welcome).remove()
        await self.transcript.add(UserBlock(draft.text, tuple(file.name for file in draft.attachments)))
        self.clear_mark()
        turn = self.session.send(draft.text, draft.attachments, self.reading)
        await self.answer_turn(turn, has_documents=bool(draft.attachments))

    async def answer_turn(self, turn: TurnEvents, has_documents: bool = False) -> None:
        """Show a turn that answers the last message on the screen; `has_documents`: new ones come with it."""
        self.toolset.note_documents(has_documents or bool(self.session.documents))
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
        starting = "" if self.session.loaded is not None else "starting the engine"
        self.status.activity = starting if view.answer is None else "waiting"
        inbox = self._inbox = TurnInbox(lambda: self.post_message(self.TurnAdvanced(inbox, view)))
        self.run_worker(inbox.run(turn), group="turn", name="turn")
        self.show_title()
        self.refresh_bindings()

    async def on_chat_screen_turn_advanced(self, message: TurnAdvanced) -> None:
        for event in message.inbox.take():
            if isinstance(event, TurnOver):
                await self._turn_over(event, message.view)
            else:
                await message.view.show(event)
            self.follow_question(event)
            if isinstance(event, UserMessageStored):
                self.show_title()
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
        await self.transcript.sync(self.session.messages)
        await self.show_citations()
        is_held = bool(over.refusal) or view.outcome in ("cancelled", "failed")
        is_start = view.answer is None
        is_former_wanted = self.note_load_over(is_start and not over.refusal and self.session.loaded is None)
        if self.load_next():
            pass
        elif self.queue.texts and not is_held:
            await self._send(self.queue.pop())
        elif self._is_stale or is_former_wanted:
            self.warm_up()
        self.show_title()
        self.refresh_bindings()

    # ---- the queue

    @property
    def num_unsent(self) -> int:
        """Messages that are written but not sent: those that wait and, if anything is in the prompt, that one."""
        return len(self.queue.texts) + bool(self.prompt.text.strip())

    @on(QueueView.EditAsked)
    def queued_edit_asked(self, event: QueueView.EditAsked) -> None:
        self._edit_queued(event.index)

    @on(QueueView.RemoveAsked)
    def queued_remove_asked(self, event: QueueView.RemoveAsked) -> None:
        self.queue.pop(event.index)
        self.show_title()

    def action_edit_queued(self) -> None:
        if self.queue.texts:
            self._edit_queued(len(self.queue.texts) - 1)

    def _edit_queued(self, index: int) -> None:
        written = self.prompt.text
        draft = self.queue.pop(index)
        self.prompt.set_text(f"{draft.text}\n{written}" if written.strip() else draft.text)
        self.take_back_files(draft.attachments)
        self.prompt.focus()
        self.show_title()

    # ---- the answer

    async def action_stop(self) -> None:
        if self.cancel_edit() or self.clear_mark():
            return
        if self._is_busy:
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
            self.say("Ctrl+Q quits.")

    async def action_regenerate(self) -> None:
        if self.refuse_while_running():
            return
        if not any(message.role == "user" for message in self.session.messages):
            self.say("There is nothing to answer yet.", "warning")
            return
        await self.transcript.drop_last_answer()
        await self.answer_turn(self.session.regenerate())

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
        self.show_title()

    async def on_unmount(self) -> None:
        await self.jobs.close()
        await self.session.close()
        self.toolset.close()

    # ---- keys and words

    @on(TextArea.Changed)
    def prompt_changed(self) -> None:
        if self._inbox is not None:
            self._inbox.note_key()
        self.plan_anew_soon()
        matches = complete_slash(self.prompt.text)
        if matches and self.prompt.text != "":
            names = "  ".join(f"/{action.command}" for action in matches)
            self.prompt.border_subtitle = Content(f"{names} · Tab completes")
        elif self.prompt.was_completing:
            self.show_title()
        self.prompt.was_completing = bool(matches)

    def on_key(self, event: events.Key) -> None:
        """Typing goes into the prompt, wherever the focus is."""
        if event.is_printable and event.character and not self.prompt.has_focus:
            event.stop()
            self.prompt.focus()
            self.prompt.insert(event.character)
