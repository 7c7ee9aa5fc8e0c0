"""The command palette's entries: the action table, by name."""

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from app.actions import ACTIONS, Action


class ActionCommands(Provider):
    """Every action that makes sense without a text field."""

    @property
    def _actions(self) -> list[Action]:
        return [action for action in ACTIONS if action.scope != "prompt" and action.is_in_palette]

    async def discover(self) -> Hits:
        for action in self._actions:
            yield DiscoveryHit(action.label, partial(self._run, action), help=_help(action))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in self._actions:
            score = max(matcher.match(action.label), matcher.match(action.help) / 2)
            if score > 0:
                yield Hit(score, matcher.highlight(action.label), partial(self._run, action), help=_help(action))

    async def _run(self, action: Action) -> None:
        owner = self.app if action.scope == "app" else self.screen
        await owner.run_action(action.name)


def _help(action: Action) -> str:
    return f"{action.help}  ({action.key_text})" if action.keys else action.help
