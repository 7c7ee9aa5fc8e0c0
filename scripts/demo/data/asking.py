"""Owns ways to ask a document for what a phrase stands for; training alone draws them."""

import re

from demo.data.words import capitalised

CLAUSE = re.compile(r"(from |to |of |on |in |until |since )?(what|where|when|how|who|whom|which|why) ")
CLAUSE_FRAMES = (
    "Do you know {p}?", "Does it say {p}?", "Can you find out {p}?", "I would like to know {p}.", "I wonder {p}.",
    "Somebody asked me {p}.", "I forgot {p}.", "Is it written there {p}?", "Show me the sentence that says {p}.",
    "Remind me {p}.", "It would help me to know {p}.", "A colleague wants to know {p}.", "Could you check {p}?",
    "Please look up {p}.", "Any idea {p}?", "Have they written down {p}?", "We were talking about {p}, do you see it?",
    "Is it clear from this {p}?", "Does anybody say {p}?", "What is written about {p}?",
)  # fmt: skip
NOUN_FRAMES = (
    "I need {p}.", "Please find {p}.", "Is {p} given?", "What do we learn about {p}?", "{P}?", "{P}, please.",
    "What about {p}?", "Quote the sentence with {p}.", "Which sentence gives {p}?", "Is there anything about {p}?",
    "What does it say about {p}?", "I am looking for {p}.", "Somebody wants to know {p}.", "Do they mention {p}?",
    "Do you see {p} anywhere?", "What does the text give as {p}?", "I can't find {p}.", "Was {p} written down?",
    "My form asks for {p}.", "Give me {p}.", "Have a look for {p}.", "What do they say {p} is?",
)  # fmt: skip


def asked_for(phrases: str) -> tuple[str, ...]:
    """Every way to ask for each phrase: "the age of {n}" or a clause such as "how old {n} is"."""
    return tuple(
        frame.replace("{p}", phrase).replace("{P}", capitalised(phrase))
        for phrase in phrases.split("; ")
        for frame in (CLAUSE_FRAMES if CLAUSE.match(phrase) else NOUN_FRAMES)
    )
