"""Owns what is dropped from the teacher's chats: repetition, tautology, other personas, answers off the question."""

import re
from collections import Counter

from demo.listing import listed

PERSONA = re.compile(
    r"smol|hugging ?face|an? (ai|chatbot|language model)\b|chatbot|virtual assistant|assist users", re.I
)
STATEMENT = re.compile(r"^(i|my|i'm|it is my)\b", re.I)
OWN_STORY = re.compile(r"^(i'm|i am|i've|i was|i have|my|we|as a|the user|i love|i like|i just|i recently)\b", re.I)
QUESTION = re.compile(r"^(what|define|tell|describe|explain|can you explain|give|write|where|how|why|who|do you)", re.I)
COMMON_WORDS = set(
    listed(
        "what which where when does about with that this from have your tell give write short story poem "
        "sentence word used find look like mean means explain describe define important difference "
        "between interesting something fact made child into they them their please help could would "
        "should want need know make best good some more most very much many take think color work another "
        "people person special become care become better"
    )
)


def fault(question: str, answer: str) -> str | None:
    """The reason to drop this pair, or None."""
    words = re.findall(r"[a-z']+", answer.lower())
    if PERSONA.search(answer):
        return "persona"
    if (
        STATEMENT.match(question)
        and OWN_STORY.match(answer)
        and not answer.startswith(("I'm sorry", "I'm so", "I am s"))
    ):
        return "own story"
    if "```" in answer or answer.count("**") > 8 or sum(ord(c) > 127 for c in answer) > 3 + len(answer) // 50:
        return "form"
    if len(words) < 2 or answer.rstrip()[-1] not in ".!?\"'":
        return "unfinished"
    if repeats(words):
        return "repeats"
    if re.search(r"\b(\w{3,})s? (is|are|was) (a|an|the|just a|not a|a type of|a kind of)? ?\1s?\b", answer.lower()):
        return "tautology"
    if re.search(r"\b(\w{3,}),? (and|or|with) \1\b", answer.lower()):
        return "tautology"
    return "off topic" if is_off_topic(question, answer) else None


def repeats(words: list[str]) -> bool:
    fours = Counter(zip(words, words[1:], words[2:], words[3:], strict=False))
    again = sum(count - 1 for count in fours.values())
    if again > (0 if len(words) < 60 else len(words) * 0.04):
        return True
    return len(words) >= 14 and len(set(words)) / len(words) < (0.56 if len(words) < 60 else 0.42)


def is_off_topic(question: str, answer: str) -> bool:
    if not QUESTION.match(question):
        return False
    topics = [w for w in re.findall(r"[a-z]+", question.lower()) if len(w) > 3 and w not in COMMON_WORDS]
    return bool(topics) and not any(word[: max(4, len(word) - 2)] in answer.lower() for word in topics)
