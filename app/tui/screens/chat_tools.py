"""Tools in the chat: the permission question, the tools and their rules, and whole results to read."""

from textual import on

from app.chat.events import PermissionAnswer, PermissionAsked, ToolCallEnded
from app.chat.tool_rules import change_rule
from app.chat.toolset import ToolSet
from app.errors import HotslotError
from app.tui.bridge import Delivered, TurnOver
from app.tui.screens.chat_base import ChatBase
from app.tui.screens.permission import PermissionScreen
from app.tui.screens.text_view import TextScreen
from app.tui.screens.tools import ToolsScreen
from app.tui.widgets.tool_card import OpenTextAsked


class ToolControls(ChatBase):
    """A question that is open when its call or turn ends is withdrawn."""

    toolset: ToolSet
    _question: PermissionScreen | None = None

    def follow_question(self, event: Delivered) -> None:
        """Ask what has to be asked; withdraw what no longer has to be answered."""
        if isinstance(event, PermissionAsked):
            self._ask(event)
        elif isinstance(event, TurnOver) or (
            isinstance(event, ToolCallEnded) and self._question and self._question.asked.call_id == event.call_id
        ):
            self._withdraw()

    def _ask(self, asked: PermissionAsked) -> None:
        self._withdraw()
        screen = self._question = PermissionScreen(asked)

        def answered(answer: PermissionAnswer | None) -> None:
            if self._question is screen:
                self._question = None
            if answer is not None:
                self.session.answer_permission(asked.call_id, answer)

        self.app.push_screen(screen, answered)

    def _withdraw(self) -> None:
        screen, self._question = self._question, None
        if screen is not None and screen.is_attached and self.app.screen is screen:
            screen.dismiss(None)

    # ---- tools and rules

    def action_tools(self) -> None:
        self.app.push_screen(ToolsScreen(self.toolset.risks, self.toolset.permissions))

    async def action_allow_tool(self, words: str = "") -> None:
        await self._change_rule("allow", words)

    async def action_deny_tool(self, words: str = "") -> None:
        await self._change_rule("deny", words)

    async def action_revoke_tool(self, words: str = "") -> None:
        await self._change_rule("revoke", words)

    async def _change_rule(self, change: str, words: str) -> None:
        """With a tool and perhaps a folder, change its rule; without, show the tools."""
        if not words:
            self.action_tools()
            return
        try:
            self.say(await change_rule(self.toolset, change, words))
        except HotslotError as error:
            self.say(str(error), "warning")

    @on(OpenTextAsked)
    def open_text_asked(self, event: OpenTextAsked) -> None:
        self.app.push_screen(TextScreen(event.title, event.text))

    def action_open_result(self) -> None:
        """The whole result of the last tool call."""
        results = [message for message in self.session.messages if message.role == "tool"]
        if not results:
            self.say("No tool has returned anything yet.", "warning")
            return
        last = results[-1]
        self.app.push_screen(TextScreen(f"Result of {last.tool_name or 'a call'}", last.full_result or last.content))
