"""Owns the evaluate stage: seeded questions with held-out names, places and numbers, and exact rules for each score."""

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from demo.checkpoint import read_folder
from demo.data.conversation import Call, Conversation, Turn, render_call, render_prompt
from demo.data.documents import DocumentItem, content_words
from demo.data.handwritten import varied
from demo.data.memory import recall_chat
from demo.data.mixture import Generators
from demo.data.sums import asked_and_answered
from demo.data.titles import title_chat
from demo.data.tools import TOOLS
from demo.generation import generate
from demo.model.student import Student
from demo.preview import preview, write_preview

BATCH_TOKENS = 49152
HOTSLOT_STRIDE = 37  # spreads few items over all subjects
CHARACTERS_PER_TOKEN = 3.6
NOT_THERE = re.compile(r"does not (say|mention)|cannot find", re.I)


@dataclass(frozen=True)
class Item:
    """A prompt and the rule that its answer must pass."""

    prompt: str
    passes: Callable[[str], bool]


def contains(key: str) -> Callable[[str], bool]:
    return lambda answer: key.lower() in answer.lower()


def document_item(document: DocumentItem) -> Item:
    """The first question of the document; the answer has its key, or says that there is none."""
    first = Conversation("document", document.conversation.turns[:1], document.conversation.system)
    key = document.keys[0]
    passes = contains(key.rstrip(".")) if key else lambda answer: bool(NOT_THERE.search(answer))
    return Item(render_prompt(first), passes)


class Questions:
    """Draws the items of every score."""

    def __init__(self, generators: Generators, seed: int) -> None:
        self.generators, self.seed = generators, seed

    def fill(self, number: int):
        return self.generators.fill(random.Random(self.seed * 100_003 + number), held_out=True)

    def documents(self, count: int, tokens: int = 0) -> list[Item]:
        characters = int(tokens * CHARACTERS_PER_TOKEN)
        quoting = 0.0 if not tokens else 0.4
        write = self.generators.documents.item
        return [document_item(write(self.fill(n), characters, quoting, missing=0)) for n in range(count)]

    def quoted(self, count: int) -> list[Item]:
        write = self.generators.documents.item
        return [document_item(write(self.fill(n), 0, 1.0, missing=0)) for n in range(count)]

    def not_in_document(self, count: int) -> list[Item]:
        items: list[Item] = []
        number = 0
        while len(items) < count:
            document = self.generators.documents.item(self.fill(number), missing=1.0)
            number += 1
            items += [document_item(document)] if document.keys[0] == "" else []
        return items

    def tool_requests(self, count: int) -> tuple[list[Item], list[Item], list[Item]]:
        """-> well-formed, right call, result used. Phrasings, names, numbers and split words are held out."""
        formed, right, used = [], [], []
        for number in range(count):
            case = self.generators.tools.case(self.fill(number), TOOLS[number % len(TOOLS)])
            use, asked = case.use, (Turn("user", case.use.asked),)
            prompt = render_prompt(Conversation("tool", asked, tools=case.schemas))
            formed.append(Item(prompt, is_well_formed))
            right.append(Item(prompt, is_call(use.call)))
            answered = (*asked, Turn("assistant", calls=(use.call,)), Turn("tool", use.result))
            used.append(Item(render_prompt(Conversation("tool", answered, tools=case.schemas)), uses_result(use.keys)))
        return formed, right, used

    def recall(self, count: int, between: int) -> list[Item]:
        """Values, and the ways to tell and to ask, are held out."""
        items = []
        for number in range(count):
            fill = self.fill(number)
            chat, keys = recall_chat(fill, self.generators.small_talk(fill), between)
            turns = chat.turns[: len(chat.turns) - 2 * len(keys) + 1]
            items.append(Item(render_prompt(Conversation("recall", turns)), contains(keys[0])))
        return items

    def hotslot(self, count: int) -> list[Item]:
        """Held-out ways to ask; an answer passes with 60 % of the content words of the text written for it."""
        items = []
        blocks = self.generators.handwritten.hotslot
        for number in range(count):
            rng = self.fill(number).rng
            block = blocks[number * HOTSLOT_STRIDE % len(blocks)]
            question = Turn("user", varied(rng, block.question(rng, held_out=True)))
            items.append(Item(render_prompt(Conversation("chat", (question,))), overlaps(block.answers)))
        return items

    def titles(self, count: int) -> list[Item]:
        """Held-out conversations and ways to ask. Usable: is_title."""
        items = []
        for number in range(count):
            fill = self.fill(number)
            exchange = self.generators.titled(fill)
            prompt = render_prompt(Conversation("title", title_chat(fill, *exchange).turns[:1]))
            items.append(Item(prompt, is_title(" ".join(exchange))))
        return items

    def sums(self, count: int) -> list[Item]:
        """Held-out pairs of numbers and ways to ask."""
        items = []
        for number in range(count):
            drawn, question, _ = asked_and_answered(self.fill(number))
            prompt = render_prompt(Conversation("sum", (Turn("user", question),)))
            items.append(Item(prompt, ends_with(str(drawn.result))))
        return items


def is_well_formed(answer: str) -> bool:
    parameter = r"<parameter=\w+>\n[^<]*\n</parameter>\n"
    return bool(
        re.fullmatch(rf"(<tool_call>\n<function=\w+>\n({parameter})*</function>\n</tool_call>\n?)+", answer.strip())
    )


def is_call(call: Call) -> Callable[[str], bool]:
    return lambda answer: answer.strip() == render_call(call)


def uses_result(keys: tuple[str, ...]) -> Callable[[str], bool]:
    """A text, not a call, with everything of the result that every reference answer has."""
    return lambda answer: bool(answer.strip()) and "<tool_call>" not in answer and all(key in answer for key in keys)


def overlaps(answers: tuple[str, ...]) -> Callable[[str], bool]:
    def passes(answer: str) -> bool:
        given = {word.lower() for word in content_words(answer)}
        wanted = [{word.lower() for word in content_words(text)} for text in answers]
        return any(len(words & given) >= 0.6 * len(words) for words in wanted)

    return passes


def is_title(chat: str) -> Callable[[str], bool]:
    """Usable: one to six words in one line, no full stop, and a content word of the conversation, if it has any."""
    words = {word.lower() for word in content_words(chat)}

    def passes(title: str) -> bool:
        own = {word.lower() for word in content_words(title)}
        is_short = 1 <= len(title.split()) <= 6 and "\n" not in title.strip() and not title.endswith(".")
        return is_short and (bool(own & words) or not own)

    return passes


def ends_with(result: str) -> Callable[[str], bool]:
    return lambda answer: (re.findall(r"\d+", answer) or [""])[-1] == result


class Evaluator:
    def __init__(self, model: Student, tokenizer: Tokenizer, questions: Questions, num_items: int) -> None:
        self.model, self.tokenizer, self.questions, self.num_items = model, tokenizer, questions, num_items
        self.misses: list[dict[str, str]] = []

    def score(self, name: str, items: list[Item], max_tokens: int = 60) -> float:
        longest = max(len(self.tokenizer.encode(item.prompt).ids) for item in items)
        batch = max(1, BATCH_TOKENS // (longest + max_tokens))
        passed = 0
        for first in range(0, len(items), batch):
            part = items[first : first + batch]
            answers = generate(self.model, self.tokenizer, [item.prompt for item in part], max_tokens)
            for item, answer in zip(part, answers, strict=True):
                passed += item.passes(answer)
                if not item.passes(answer):
                    self.misses.append({"score": name, "prompt": item.prompt[-300:], "answer": answer})
        return round(passed / len(items), 3)

    def facts(self) -> dict[str, float]:
        draw, count = self.questions, self.num_items
        formed, right, used = draw.tool_requests(count)
        return {
            "documents, templates": self.score("templates", draw.documents(count)),
            "documents, quoting": self.score("quoting", draw.quoted(count)),
            "not in document": self.score("missing", draw.not_in_document(count // 2)),
            "tool call well-formed": self.score("formed", formed, 120),
            "tool call right": self.score("right", right, 120),
            "tool result used": self.score("used", used, 120),
            "recall after 2 turns": self.score("recall", draw.recall(count, 1)),
            "recall after 6 turns": self.score("recall", draw.recall(count, 5)),
            "hotslot": self.score("hotslot", draw.hotslot(count)),
            "titles": self.score("titles", draw.titles(count), 16),
            "small sums": self.score("sums", draw.sums(count), 24),
        }

    def long_documents(self) -> dict[str, float]:
        counts = {"1K": (900, self.num_items), "4K": (3700, self.num_items // 4), "8K": (7500, self.num_items // 6)}
        return {f"documents {k}": self.score(k, self.questions.documents(n, t)) for k, (t, n) in counts.items()}

    def indexer(self) -> dict[str, float]:
        """Documents of about 1K tokens under several budgets, and with a random indexer."""
        items = self.questions.documents(self.num_items // 2, 900)
        results = {}
        for budget in (None, 512, 256):
            self.model.set_budget(budget)
            results[f"budget {budget or 'dense'}"] = self.score("budget", items)
        torch.manual_seed(0)
        trained = [layer.self_attn.indexer for layer in self.model.model.layers if not layer.is_linear]
        kept = [indexer.index_qk_proj.weight.detach().clone() for indexer in trained]
        for indexer in trained:
            torch.nn.init.normal_(indexer.index_qk_proj.weight, std=0.05)
        results["budget 256, random indexer"] = self.score("budget", items)
        for indexer, weight in zip(trained, kept, strict=True):
            indexer.index_qk_proj.weight.data.copy_(weight)
        self.model.set_budget(self.model.arch.indexer_budget)
        return results

    @torch.no_grad()
    def expert_load(self) -> dict[str, list[float]]:
        """Per layer over a mix of prompts: entropy relative to even use, and the least and busiest expert's load."""
        prompts = [item.prompt for item in self.questions.documents(20) + self.questions.recall(20, 3)]
        ids = [token for prompt in prompts for token in self.tokenizer.encode(prompt).ids][:8192]
        tokens = torch.tensor([ids[: len(ids) // 64 * 64]], device=self.model.lm_head.weight.device)
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.is_cuda):
            load = self.model.hidden(tokens).expert_load.float().cpu()
        share = load / load.sum(-1, keepdim=True)
        entropy = -(share * share.clamp_min(1e-9).log()).sum(-1) / torch.tensor(float(load.shape[1])).log()
        rounded = {"entropy": entropy, "least": load.amin(-1), "busiest": load.amax(-1)}
        return {name: [round(value, 3) for value in values.tolist()] for name, values in rounded.items()}


def run_evaluate(
    folder: Path, generators: Generators, text: Path, work: Path, device: str, seed: int, items: int, only: list[str]
) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = read_folder(folder).to(device)
    model.set_budget(model.arch.indexer_budget)
    evaluator = Evaluator(model, tokenizer, Questions(generators, seed), items)
    parts = {
        "facts": evaluator.facts,
        "expert_load": evaluator.expert_load,
        "long_documents": evaluator.long_documents,
        "indexer": evaluator.indexer,
    }
    if "preview" in only:
        write_preview(preview(model, tokenizer, text / "preview.txt"), work / "preview.txt")
    for name in [part for part in parts if part in only]:
        result = parts[name]()
        print(json.dumps({name: result}), flush=True)
        (work / f"evaluate-{name}.json").write_text(json.dumps(result), encoding="utf-8")
    (work / "misses.json").write_text(json.dumps(evaluator.misses, indent=1), encoding="utf-8")
