"""Owns the evaluate stage: which scores there are, and running them on the trainable model or the real engine."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

from demo.answering import Answer, from_engine, from_student
from demo.checkpoint import read_folder
from demo.data.app_chats import CHAT_OFFERS, OFFERS
from demo.data.conversation import render_prompt
from demo.data.mixture import Generators
from demo.model.student import Student
from demo.natural import natural_scores
from demo.preview import preview, write_preview
from demo.questions import Item, Questions, in_app, is_refusal


class Evaluator:
    def __init__(self, answer: Answer, questions: Questions, num_items: int) -> None:
        self.answer, self.questions, self.num_items = answer, questions, num_items
        self.misses: list[dict[str, str]] = []

    def score(self, name: str, items: list[Item], max_tokens: int = 80) -> float:
        answers = self.answer([item.conversation for item in items], max_tokens)
        missed = [(item, answer) for item, answer in zip(items, answers, strict=True) if not item.passes(answer)]
        for item, answer in missed:
            asked = render_prompt(item.conversation)
            self.misses.append({"score": name, "prompt": asked[:200] + " ... " + asked[-300:], "answer": answer})
        passed = round(1 - len(missed) / len(items), 3)
        print(f"{name}: {passed} of {len(items)}", flush=True)
        return passed

    def facts(self) -> dict[str, float]:
        draw, count = self.questions, self.num_items
        formed, right, used = draw.tool_requests(count)
        return {
            "documents, facts": self.score("facts", draw.documents(count)),
            "documents, passages": self.score("passages", draw.quoted(count)),
            "tool call well-formed": self.score("formed", formed, 120),
            "tool call right": self.score("right", right, 120),
            "tool result used": self.score("used", used, 120),
            "recall after 2 turns": self.score("recall", draw.recall(count, 1)),
            "recall after 6 turns": self.score("recall", draw.recall(count, 5)),
            "hotslot": self.score("hotslot", draw.hotslot(count)),
            "titles": self.score("titles", draw.titles(count), 16),
            "small sums": self.score("sums", draw.sums(count), 24),
        }

    def missing(self) -> dict[str, float]:
        """Of as many questions without and with an answer in the document: refusals that are right, and found ones."""
        absent = self.score("missing", self.questions.not_in_document(self.num_items))
        present = [item.conversation for item in self.questions.documents(self.num_items)]
        wrong = sum(map(is_refusal, self.answer(present, 80))) / len(present)
        return {"recall": absent, "precision": round(absent / (absent + wrong), 3) if absent else 0.0}

    def long_documents(self) -> dict[str, float]:
        counts = {"1K": (1000, self.num_items), "4K": (4000, self.num_items // 2), "8K": (7200, self.num_items // 2)}
        return {f"documents {k}": self.score(k, self.questions.documents(n, t)) for k, (t, n) in counts.items()}

    def app(self) -> dict[str, float]:
        """The same questions as in `facts`, with the application's tools on offer."""
        draw, count = self.questions, self.num_items
        return {
            "documents, facts": self.score("facts in app", in_app(draw.documents(count), OFFERS)),
            "recall after 2 turns": self.score("recall in app", in_app(draw.recall(count, 1), CHAT_OFFERS)),
            "hotslot": self.score("hotslot in app", in_app(draw.hotslot(count), CHAT_OFFERS)),
        }

    def natural(self) -> dict[str, float]:
        return natural_scores(self.answer, self.misses)


def indexer_scores(model: Student, evaluator: Evaluator) -> dict[str, float]:
    """Documents of about 1K tokens under several budgets, and with a random indexer."""
    items = evaluator.questions.documents(evaluator.num_items, 1000)
    results = {}
    for budget in (None, 512, 256):
        model.set_budget(budget)
        results[f"budget {budget or 'dense'}"] = evaluator.score("budget", items)
    torch.manual_seed(0)
    trained = [attention.indexer for attention in model.attentions]
    kept = [indexer.index_qk_proj.weight.detach().clone() for indexer in trained]
    for indexer in trained:
        torch.nn.init.normal_(indexer.index_qk_proj.weight, std=0.05)
    results["budget 256, random indexer"] = evaluator.score("budget", items)
    for indexer, weight in zip(trained, kept, strict=True):
        indexer.index_qk_proj.weight.data.copy_(weight)
    model.set_budget(model.arch.indexer_budget)
    return results


@torch.no_grad()
def expert_load(model: Student, tokenizer: Tokenizer, questions: Questions) -> dict[str, list[float]]:
    """Per layer over a mix of prompts: entropy relative to even use, and the least and busiest expert's load."""
    prompts = [render_prompt(item.conversation) for item in questions.documents(20) + questions.recall(20, 3)]
    ids = [token for prompt in prompts for token in tokenizer.encode(prompt).ids][:8192]
    tokens = torch.tensor([ids[: len(ids) // 64 * 64]], device=model.lm_head.weight.device)
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.is_cuda):
        load = model.hidden(tokens).expert_load.float().cpu()
    share = load / load.sum(-1, keepdim=True)
    entropy = -(share * share.clamp_min(1e-9).log()).sum(-1) / torch.tensor(float(load.shape[1])).log()
    rounded = {"entropy": entropy, "least": load.amin(-1), "busiest": load.amax(-1)}
    return {name: [round(value, 3) for value in values.tolist()] for name, values in rounded.items()}


ENGINE_PARTS = ("facts", "missing", "long_documents", "app", "natural")


def run_evaluate(
    folder: Path,
    generators: Generators,
    text: Path,
    work: Path,
    device: str,
    seed: int,
    items: int,
    only: list[str],
    with_engine: bool,
) -> None:
    """Parts that only the trainable model can do are left out with the engine."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    questions = Questions(generators, seed)
    if with_engine:
        with from_engine(folder) as answer:
            report(Evaluator(answer, questions, items), [part for part in only if part in ENGINE_PARTS], work, {})
        return
    model = read_folder(folder).to(device)
    model.set_budget(model.arch.indexer_budget)
    if "preview" in only:
        write_preview(preview(model, tokenizer, text / "preview.txt"), work / "preview.txt")
    evaluator = Evaluator(from_student(model, tokenizer), questions, items)
    others = {
        "expert_load": lambda: expert_load(model, tokenizer, questions),
        "indexer": lambda: indexer_scores(model, evaluator),
    }
    report(evaluator, [part for part in only if part != "preview"], work, others)


def report(evaluator: Evaluator, names: list[str], work: Path, others: dict) -> None:
    for name in names:
        result = others[name]() if name in others else getattr(evaluator, name)()
        print(json.dumps({name: result}), flush=True)
        (work / f"evaluate-{name}.json").write_text(json.dumps(result), encoding="utf-8")
    (work / "misses.json").write_text(json.dumps(evaluator.misses, indent=1), encoding="utf-8")
