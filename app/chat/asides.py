"""A question that the model itself puts to a fresh context, beside its own chat."""

from app.chat.side_calls import SideCalls
from app.chat.titles import first_words
from runtime.protocol import ChatMessage

_MOST_TOKENS = 400
"""Of an answer: the model asks aside to keep its own context short."""


async def ask_aside(side_calls: SideCalls, question: str, conversation_id: str = "") -> str:
    """The answer, which knows nothing of the chat. Raises SideCallError."""
    messages = (ChatMessage("user", question),)
    return await side_calls.ask("aside", first_words(question), messages, _MOST_TOKENS, conversation_id)
