"""Owns short titles for conversations."""

import re

from demo.data.conversation import Conversation, pairs
from demo.data.passages import content_words
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
# For training only.
MORE_ASKED = (
    "{c}\n\nTitle?", "Headline for this chat, please:\n\n{c}", "In six words or fewer, what is this about?\n\n{c}",
    "{c}\n\nI want to find this chat again. Name it.", "Label this chat.\n\n{c}", "{c}\n\nWhat's the topic here?",
    "Put a name on this chat, nothing else:\n\n{c}", "{c}\n\nReply with a title only.", "Topic of this chat:\n\n{c}",
    "Make a short heading out of this.\n\n{c}", "{c}\n\nIf this were a file, what would you call it?",
    "For my list of chats I need a name for this one.\n\n{c}", "Chat:\n{c}\n\nName:", "{c}\n---\nShort title:",
    "What would you write over this conversation?\n\n{c}", "{c}\n\nTwo to six words that say what this was about:",
    "Please find a name for what follows.\n\n{c}", "How would you name this talk?\n\n{c}",
    "{c}\n\nA few words for the sidebar, please.", "Do not answer it, only name it:\n\n{c}",
    "Which title fits here?\n\n{c}", "{c}\n\nWhich heading would suit this?", "Entitle this:\n\n{c}",
    "Don't reply to what is below. Give its subject in a few words.\n\n{c}", "Subject line for this talk:\n\n{c}",
    "{c}\n\nSubject line:", "I save this under which name?\n\n{c}", "{c}\n\nUnder what name shall I save it?",
    "The following was said. Put it into a title.\n\n{c}", "What is the theme of this talk? Few words.\n\n{c}",
    "{c}\n\nThe above needs a caption.", "Caption for this dialogue:\n\n{c}", "Dialogue:\n\n{c}\n\nCaption:",
    "Name the dialogue below in a handful of words.\n\n{c}", "{c}\n\nSay in at most five words what was asked.",
    "Read this and give me a title for it.\n\n{c}", "A heading of no more than six words for this talk:\n\n{c}",
    "{c}\n\nHeading (six words at most):", "What is being talked about? Answer with a title.\n\n{c}",
    "Suggest a title.\n\n{c}", "{c}\n\nSuggest a heading for these lines.", "Come up with a short title:\n\n{c}",
    "This exchange has no name yet. Give it one.\n\n{c}", "{c}\n\nThis has no title so far. What should it be?",
    "Turn this into a headline.\n\n{c}", "{c}\n\nHeadline of a few words:", "Tag this exchange briefly.\n\n{c}",
    "I'd like a brief title for the lines below.\n\n{c}", "Brief title, please. Here is the talk:\n\n{c}",
    "{c}\n\nCall it something short.", "Could you name this exchange?\n\n{c}", "Below is a chat. Its name?\n\n{c}",
    "The user began with this. How do we call the chat?\n\n{c}", "First message:\n{c}\n\nName of the chat:",
    "Someone wrote what stands below. Sum it up as a heading.\n\n{c}", "{c}\n\nTitle of the chat in short:",
    "{c}\n\nAs a title, without quotes:", "Only a title, not an answer:\n\n{c}", "{c}\n\nJust the title.",
)  # fmt: skip
MORE_ASKED_SHARE = 0.5
UNNAMED = "Short chat"
LONG, ENOUGH_WORDS = 60, 3
SENTENCE_END = re.compile(r"(?<=[?!.;])\s+")
MARKS = re.compile(r"[?!.,;:\"`)]+(?=\s|$)|(?<!\S)[\"`(]+")
LEADS = re.compile(
    r"^(hi|hey|hello|please|so|well|ok|um|now|and|also|oh|hmm|ugh|btw|honestly|by the way|anyway|you know|hotslot"
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
    listed(
        "a an the of to in on at for and or with from by is are am was i my me you it that this some all any but so "
        "than if as"
    )
)
# A title of these alone names nothing.
PRONOUNS = SMALL | frozenset(listed("what you up so there its use like most how do does is"))


def title_of(question: str) -> str:
    """Of the sentence that says most, without polite and asking words, at most six words, no small one at the end.

    Empty where the question has no word.
    """
    line = next((line for line in question.split("\n") if line.strip()), "")
    titles = [shortened(sentence) for sentence in SENTENCE_END.split(line)]
    return max(titles, key=lambda title: min(len(content_words(title)), ENOUGH_WORDS), default="")


def shortened(sentence: str) -> str:
    text = re.sub(MARKS, "", clause(sentence) if len(sentence) >= LONG else sentence).strip()
    for _ in range(4):
        text = LEADS.sub("", text).strip()
    words = text.split()[:6]
    while len(words) > 1 and words[-1].lower() in SMALL:
        words.pop()
    return capitalised(" ".join(words)) if words else ""


def names_something(title: str) -> bool:
    return any(word.lower() not in PRONOUNS for word in title.split())


def clause(sentence: str) -> str:
    """The first clause of a long sentence that says more than a greeting."""
    parts = [part.strip() for part in re.split(r"[?!,;:](?:\s|$)", sentence) if len(part.split()) > 2]
    return parts[0] if parts else sentence


def is_held_out(question: str) -> bool:
    """Conversations that are titled in evaluation only; the letters of the question say which."""
    return sum(map(ord, question)) % 10 == 0


def title_chat(fill: Fillers, question: str, answer: str, later: str = "") -> Conversation:
    """`later` is what follows in the chat. A question that names nothing is titled by its answer."""
    rng, both = fill.rng, f"User: {question}\nAssistant: {answer}"
    shown, asked = rng.choice((both, f"User: {question}", question)), fill.phrasing(ASKED)
    title = title_of(question)
    if not names_something(title):
        title = title_of(answer) or UNNAMED
        shown = shown if fill.held_out else both
    if not fill.held_out and rng.random() < MORE_ASKED_SHARE:
        is_first = rng.random() < 0.3
        shown, asked = (both, ASKED[0]) if is_first else (both + later if later else shown, rng.choice(MORE_ASKED))
    return Conversation("title", pairs(asked.format(c=shown), title))
