"""Side calls in the chat: their list, their number in the status bar, and the titles they give."""

from app.tui.screens.chat_base import ChatBase
from app.tui.screens.side_calls import SideCallsScreen


class SideCallControls(ChatBase):
    """None of it waits for a side call."""

    def follow_side_calls(self) -> None:
        """From now on the figures and titles are kept up to date."""
        self.session.side_calls.on_changed = self._note_side_calls
        self.session.side_jobs.on_title_changed = self.show_title

    def _note_side_calls(self) -> None:
        if self.is_mounted:
            self.status.num_side_calls = sum(not call.is_over for call in self.session.side_calls.calls)

    def action_side_calls(self, words: str = "") -> None:
        """Show them; with words, cancel: 'cancel' all, or 'cancel 2', counted from the oldest."""
        calls = self.session.side_calls.calls
        if not words:
            self.app.push_screen(SideCallsScreen(self.session.side_calls))
            return
        number = words.removeprefix("cancel").strip()
        if number not in ("", "all") and not (number.isdecimal() and 1 <= int(number) <= len(calls)):
            self.say(f"There is no side call {number}.", "warning")
            return
        for call in calls if number in ("", "all") else (calls[int(number) - 1],):
            self.session.side_calls.cancel(call.id)
        self.say("Cancelled.")
