"""Slash commands of the message and its answer: attach, detach, answer again, stop, take back, and the help."""

from app.actions import ACTIONS, Action, line_actions
from app.chat.attachments import path_of, read_attachment, told_twice
from app.figures import explain
from app.lines.line_base import LineCommands
from app.threads import in_thread
from runtime.errors import UsageError


class MessageCommands(LineCommands):
    """Attached files go with the next message."""

    async def do_attach(self, written: str) -> None:
        if not written:
            raise UsageError("Which file? /attach and its path.")
        attachment, notice = await in_thread(lambda _: read_attachment(path_of(written), may_be_pipe=False))
        if notice:
            self.console.notice(notice)
        if twice := told_twice(attachment, self.state.attachments):
            self.console.notice(twice)
            return
        self.state.attachments.append(attachment)
        self.console.remark(
            f"Attached: {attachment.name}, {len(attachment.text):,} characters; goes with the next message."
        )

    async def do_detach(self, argument: str) -> None:
        if not self.state.attachments:
            raise UsageError("No file is attached; /attach and a path attaches one.")
        self.console.remark(f"Detached: {self.state.attachments.pop().name}")

    async def do_edit_queued(self, argument: str) -> None:
        line = self.state.input.unqueue()
        self.console.remark("Nothing waits." if line is None else f"Taken back: {line}")

    async def do_stop(self, argument: str) -> None:
        if not self.session.is_busy:
            self.console.remark("Nothing runs.")
        await self.session.cancel()

    async def do_show_help(self, argument: str) -> None:
        for group in dict.fromkeys(action.group for action in ACTIONS):
            actions = [action for action in line_actions() if action.group == group]
            if actions:
                self.console.print(f"{group}:")
            for action in actions:
                self.console.print(f"  {usage(action)}: {action.help}")
        if self.session.stats is not None:
            self.console.print("The figures now:")
            for line in explain(self.session.stats):
                self.console.print(f"  {line}")
        self.console.remark("Everything else is a message. A backslash at the end of a line continues it on the next.")


def usage(action: Action) -> str:
    """'/attach [path]', with its other names."""
    argument = f" [{action.argument}]" if action.argument else ""
    also = "".join(f" or /{alias}" for alias in action.aliases)
    return f"/{action.command}{also}{argument}"
