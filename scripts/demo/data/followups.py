"""Owns what a person says after an answer ("why?", "shorter please", "what did I ask?") and the reply to it."""

import random
import re

from demo.data.words import capitalised

ANOTHER = ("another one", "one more", "again", "tell me another one", "another", "more", "give me another one")
ANOTHER += (
    "one more please",
    "do you have another one",
    "next",
    "another one please",
    "next one",
    "can i have another",
)
ANOTHER += ("haha, another one", "that was good, one more", "ok one more", "any more", "got more", "a different one")
OTHER_IDEAS = (
    "any other ideas",
    "what else",
    "do you have another tip",
    "something else",
    "anything else",
    "other ideas",
)
OTHER_IDEAS += (
    "give me another idea",
    "that does not help",
    "what else can i do",
    "i tried that already",
    "another tip",
)
OTHER_IDEAS += (
    "i don't like that, what else",
    "and if that does not work",
    "more tips",
    "another idea please",
    "what more",
)
MORE_ABOUT = ("tell me more", "tell me more about it", "more please", "can you tell me more", "explain more", "go on")
MORE_ABOUT += ("more details", "and then", "i want to know more", "what else do you know about it", "continue", "more")
MORE_ABOUT += ("can you explain that in more detail", "keep going", "what else")
NO_MORE = (
    "I am a small model, so that is about all I know. What else would you like to know?",
    "That is about all I know about it. Please look it up if you want more details.",
)
REPEAT = (
    "what did you say",
    "can you repeat that",
    "say that again",
    "repeat that please",
    "sorry, what",
    "come again",
)
REPEAT += ("what was that", "please repeat", "could you say that again", "what did you just say", "repeat your answer")
REPEAT += ("i did not get that, say it again", "what was your answer", "repeat", "once more please, i missed it")
ASKED = ("what did i just ask", "what did i ask", "what did i say", "what was my question", "what did i just say")
ASKED += ("do you remember what i asked", "what was my last message", "repeat my question", "what did i write before")
ASKED += (
    "what was my question again",
    "can you repeat what i said",
    "what did i just write",
    "what was it i asked you",
)
SHORTER = ("shorter please", "make it shorter", "can you say that in one sentence", "too long", "in short", "shorter")
SHORTER += (
    "can you make that shorter",
    "say it shorter",
    "tl;dr",
    "just one sentence please",
    "that is too long",
    "brief",
)
CLEARER = ("i don't understand", "what do you mean", "i did not understand that", "what does that mean", "explain that")
CLEARER += ("can you explain that", "in simple words please", "huh", "i don't get it", "what do you mean by that")
WHY = (
    "why",
    "why is that",
    "why so",
    "how come",
    "why do you say that",
    "why do you think so",
    "but why",
    "why though",
)
WHY += ("what makes you say that", "why would i do that", "what is the reason")
BECAUSE = (
    "Because it has worked for many people. Try it for a few days and see if it helps you.",
    "Because small and simple steps are the easiest to keep up. You can change it so that it fits you.",
    "I learned it that way from my training text, and I cannot give you a deeper reason. What do you think?",
)
BECAUSE_FACT = (
    "I do not know the deeper reason, because I am a small model. A good book or website can tell you more.",
    "That is as far as my knowledge goes, sorry. Please look it up if you want the details.",
)
AND_YOU = ("and you", "what about you", "how about you", "and what about you", "and yours", "you too", "do you too")
ONLY_PROGRAM = (
    "I am only a program, so I do not have that in my life. But I like to hear about yours!",
    "As a small program I have no days and no feelings like yours, but our chat is nice. Tell me more about you!",
)
THANKS = (
    "thank you",
    "thanks",
    "thanks a lot",
    "great, thanks",
    "thank you so much",
    "ok thanks",
    "thx",
    "perfect, thank you",
)
THANKS += (
    "thanks, that helps",
    "good idea, thanks",
    "cool, thank you",
    "nice, thanks",
    "thank you, i will try that",
    "ty",
)
THANKS += (
    "that was helpful",
    "good tip, thanks",
    "awesome, thank you",
    "i will try that",
    "ok i will do that",
    "good idea",
)
WELCOME = ("You are welcome!", "You are welcome! Let me know if you need anything else.", "Happy to help!")
YES = (
    "yes",
    "yes please",
    "yeah",
    "sure",
    "yep",
    "ok",
    "of course",
    "i do",
    "yes i do",
    "yes, why not",
    "right",
    "yup",
)
LISTENING = ("Good! Tell me more about it.", "I am listening. Go ahead!", "Great, tell me more. I am curious.")
NO = (
    "no",
    "nope",
    "not really",
    "no thanks",
    "i don't think so",
    "no thank you",
    "not now",
    "rather not",
    "nah",
    "no i don't",
)
ALL_RIGHT = (
    "That is all right. What would you like to talk about?",
    "No problem. Is there anything else I can do for you?",
)
SURE = (
    "are you sure",
    "really",
    "is that true",
    "is that right",
    "seriously",
    "are you certain",
    "no way",
    "is that correct",
)
NOT_SURE = ("I think so, but I am a small model and make mistakes. Please check it if it matters.",)


def first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s+(?=[A-Z])", text)[0]


def follow_up(
    rng: random.Random, question: str, answer: str, others: list[str], is_fact: bool, is_advice: bool
) -> tuple[str, str]:
    """-> what the user says next, not yet varied, and the reply. `others` are further answers to the same question."""
    short = first_sentence(answer)
    options = [(REPEAT, (answer,)), (ASKED, (f'You wrote: "{question}"',)), (THANKS, WELCOME), (SURE, NOT_SURE)]
    if short != answer:
        options += [(SHORTER, (short,)), (CLEARER, (f"In short: {short}", f"I mean this: {short}"))]
    if len(others) > 2 or (others and not is_fact and not is_advice):
        options += [(ANOTHER, tuple(others))] * 3
    if is_advice:
        options += [(OTHER_IDEAS, tuple(others))] * 2 if others else [(OTHER_IDEAS, NO_IDEAS)]
    if is_fact:
        options += [(MORE_ABOUT, NO_MORE)] * 2
    options.append((WHY, BECAUSE_FACT if is_fact else BECAUSE))
    if answer.endswith("?"):
        options = [(YES, LISTENING), (NO, ALL_RIGHT), (AND_YOU, ONLY_PROGRAM), *options[:3]]
    said, replies = rng.choice(options)
    return rng.choice(said), capitalised(rng.choice(replies))


NO_IDEAS = (
    "That is the best tip I know, sorry. A friend or someone with experience may have another idea.",
    "I have no other idea at the moment. Would you like to tell me more about it?",
)
