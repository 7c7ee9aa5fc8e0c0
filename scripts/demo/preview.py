"""Owns the everyday preview: fixed prompts, greedy and sampled answers, for a reader to judge."""

from pathlib import Path

from demo.data.conversation import Conversation, Turn, render_prompt
from demo.generation import DEFAULT_SAMPLING, GREEDY, generate
from demo.model.student import Student

MAX_TOKENS = 110


def preview(model: Student, tokenizer, prompts_file: Path) -> list[tuple[str, str, str]]:
    """-> (prompt, greedy answer, sampled answer)."""
    questions = [line for line in prompts_file.read_text(encoding="utf-8").splitlines() if line]
    prompts = [render_prompt(Conversation("chat", (Turn("user", question),))) for question in questions]
    greedy = generate(model, tokenizer, prompts, MAX_TOKENS, GREEDY)
    sampled = generate(model, tokenizer, prompts, MAX_TOKENS, DEFAULT_SAMPLING)
    return list(zip(questions, greedy, sampled, strict=True))


def write_preview(answers: list[tuple[str, str, str]], path: Path) -> None:
    lines = [f"> {question}\n  greedy:  {greedy}\n  sampled: {sampled}" for question, greedy, sampled in answers]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
