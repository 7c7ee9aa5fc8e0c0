"""The tools and what the user has decided about them: allow, deny, ask again. Changes the rules, and nothing else."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.errors import HotslotError
from app.tools.permissions import Decision, PermissionRule
from app.tools.toolbox import Permissions
from app.tui.bindings import either_case
from app.tui.display import MUTED, shown

RISKS = {"none": "touches nothing", "read": "reads files", "write": "writes files", "run": "runs programs"}


class ToolsScreen(ModalScreen[None]):
    """One row per tool, under it a row per rule; A allows, D denies, R asks again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f6", "dismiss(None)", "Back"),
        Binding(either_case("a"), "decide('allow')", "Allow"),
        Binding(either_case("d"), "decide('deny')", "Deny"),
        Binding(either_case("r", "delete"), "revoke", "Ask again"),
    ]

    def __init__(self, risks: dict[str, str], permissions: Permissions) -> None:
        super().__init__(classes="panel-screen")
        self._risks = risks
        self._permissions = permissions
        self._rows: list[PermissionRule | str] = []
        """A rule, or the name of a tool."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel-box") as box:
            box.border_title = Content("Tools")
            box.border_subtitle = Content("A allow · D deny · R ask again · Esc back")
            yield OptionList(markup=False)
            words = "No tools are offered; Tools in the settings (Ctrl+S) switches them on."
            yield Static(Content(words), markup=False, classes="empty")

    async def on_mount(self) -> None:
        await self._list()
        self.query_one(OptionList).focus()

    async def _list(self) -> None:
        try:
            rules = await self._permissions.run(lambda: self._permissions.rules)
        except HotslotError as error:
            self.notify(shown(str(error)).plain, severity="error", markup=False)
            rules = ()
        options = self.query_one(OptionList)
        at = options.highlighted or 0
        names = [*self._risks, *dict.fromkeys(rule.permission for rule in rules if rule.permission not in self._risks)]
        self._rows = []
        for name in names:
            self._rows += [name, *(rule for rule in rules if rule.permission == name)]
        options.clear_options()
        ruled = {rule.permission for rule in rules}
        options.add_options([Option(self._row(row, has_rules=row in ruled)) for row in self._rows])
        options.highlighted = min(at, len(self._rows) - 1) if self._rows else None
        options.display = bool(self._rows)
        self.query_one(".empty").display = not self._rows

    def _row(self, row: PermissionRule | str, has_rules: bool) -> Content:
        if isinstance(row, str):
            risk = RISKS.get(self._risks.get(row, ""), "not offered now")
            asks = "asks, unless a rule below decides" if has_rules else "asks"
            return Content.assemble(shown(row, "bold"), (f"  {risk} · {asks}", MUTED))
        style = "$text-success" if row.decision == "allow" else "$text-error"
        words = "always allowed" if row.decision == "allow" else "always denied"
        where = shown(row.folder) if row.folder else Content("everywhere")
        return Content.assemble("    ", (words, style), " ", where)

    @property
    def _chosen(self) -> PermissionRule | str | None:
        at = self.query_one(OptionList).highlighted
        return self._rows[at] if at is not None and at < len(self._rows) else None

    async def action_decide(self, decision: Decision) -> None:
        """For the folder of a rule, for everywhere on a tool's own row."""
        chosen = self._chosen
        if chosen is None:
            return
        name, folder = (chosen, "") if isinstance(chosen, str) else (chosen.permission, chosen.folder)
        await self._change(self._permissions.remember, name, folder, decision)

    async def action_revoke(self) -> None:
        """Forget the rule; on a tool's own row, the one for everywhere."""
        chosen = self._chosen
        if chosen is None:
            return
        name, folder = (chosen, "") if isinstance(chosen, str) else (chosen.permission, chosen.folder)
        await self._change(self._permissions.revoke, name, folder)

    async def _change(self, change: object, *values: str) -> None:
        try:
            await self._permissions.run(change, *values)  # type: ignore[arg-type]
        except HotslotError as error:
            self.notify(shown(str(error)).plain, severity="error", markup=False)
        await self._list()
