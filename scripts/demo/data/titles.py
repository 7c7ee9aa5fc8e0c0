"""Owns short titles for conversations."""

import re

from demo.data.conversation import Conversation, pairs
from demo.data.words import Fillers, capitalised
from demo.listing import listed

ASKED = (
    "Write a short title for this conversation.\n\n{c}",
    "Give this conversation a title of at most six words.\n\n{c}",
    "{c}\n\nWrite a short title for the conversation above.",
    "Title this chat in a few words:\n\n{c}",
    "What would be a good title for this chat?\n\n{c}",
    "Name this conversation in two to six words.\n\n{c}",
    "{c}\n\nGive the chat above a short name.",
    "Conversation:\n{c}\n\nTitle:",
    "Find a heading for this chat:\n\n{c}",
    "{c}\n\nTitle, at most six words:",
    "Sum up this chat as a title.\n\n{c}",
    "Please make a title of a few words for this:\n\n{c}",
    "{c}\n\nHow should this conversation be called?",
    "Write a title, no full stop, for this chat:\n\n{c}",
    "Short name for the conversation below, please.\n\n{c}",
)
LEADS = re.compile(
    r"^(hi|hey|hello|please|so|well|ok|um|now|and|also|oh|hmm|ugh|btw|honestly|by the way|you know|hotslot"
    r"|quick question|another question|just curious|tell me|maybe you know|i was wondering|i have a question"
    r"|i want to know)\b[,:!. ]+"
    r"|^(can|could|would|will) you (please )?|^do you know (what |how |who |if |where )?"
    r"|^(is there a way to|is it possible to|do you have any advice on|what is the (best|easiest) way to) "
    r"|^(please )?(tell|give|show|explain to|help) me (about |what |how to |how |to |with |a |an |some )?"
    r"|^(something|a little|more|anything) about |^i (want|need|would like|have|am trying|am going|plan|wish) "
    r"|^(to|a|an|the|my) |^i don't know (how to |what )?|^(i am|i'm|im|i feel|i have been) "
    r"|^any (tips|ideas|advice) (to|for|on) |^how (do i|can i|should i|to|do you|would you) "
    r"|^(what|where|when|which|whats)('s| is| are| was| were| does| do| did| should i| can i| to| would)? "
    r"|^(who|how) (is|are|was|were|does|do|did|much is|can) ",
    re.I,
)
SMALL = frozenset(
    listed("a an the of to in on at for and or with from by is are am was i my me you it that this some all any")
)


def title_of(question: str) -> str:
    """The question without its polite and asking words, at most six words, not ending with a small one."""
    text = re.sub(r"[?!.\",;]", "", question.split("\n")[0]).strip() if len(question) < 60 else clause(question)
    for _ in range(4):
        text = LEADS.sub("", text).strip()
    words = text.split()[:6]
    while len(words) > 1 and words[-1].lower() in SMALL:
        words.pop()
    return capitalised(" ".join(words)) if words else "Short chat"


def clause(question: str) -> str:
    """The first clause of a long question that says more than a greeting."""
    text = question.split("\n")[0]
    parts = [part.strip() for part in re.split(r"[?!.,;:]", text) if len(part.split()) > 2]
    return parts[0] if parts else text


def is_held_out(question: str) -> bool:
    """Conversations that are titled in evaluation only; the letters of the question say which."""
    return sum(map(ord, question)) % 10 == 0


def title_chat(fill: Fillers, question: str, answer: str) -> Conversation:
    shown = fill.rng.choice((f"User: {question}\nAssistant: {answer}", f"User: {question}", question))
    return Conversation("title", pairs(fill.phrasing(ASKED).format(c=shown), title_of(question)))
