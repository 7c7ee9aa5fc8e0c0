"""Copying from the chat: answers, code blocks, messages, the selection."""

from textual import on

from app.chat.session import ChatSession
from app.locations import Locations
from app.store.conversations import Store
from app.tui.clipboard import copy_text
from app.tui.screens.chat_base import ChatBase
from app.tui.widgets.code_block import CodeBlock
from app.tui.widgets.message_blocks import CopyAsked


class CopyControls(ChatBase):
    """Puts exactly what was said into the clipboard."""

    def __init__(self, session: ChatSession, store: Store, locations: Locations) -> None:
        super().__init__(session, store, locations)
        self._num_code_copies = 0
        """How many code blocks were copied since the last answer began; each goes one further back."""

    async def action_copy_answer(self) -> None:
        answers = [message for message in self.session.messages if message.role == "assistant" and message.content]
        growing = [block for block in self.transcript.answers if block.text]
        if self._is_busy and growing:
            await self._copy(growing[-1].text, "answer so far")
        elif answers:
            await self._copy(answers[-1].content, "answer")
        else:
            self.say("There is no answer to copy yet.", "warning")

    async def action_copy_code(self) -> None:
        blocks = list(self.transcript.query(CodeBlock))
        if not blocks:
            self.say("There is no code block to copy.", "warning")
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
        self.say(f"Copied {what} ({len(text)} characters).")
