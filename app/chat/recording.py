"""How what came of a turn becomes messages of the transcript: its answers, and the results of their calls."""

from collections.abc import Sequence

from app.chat.tool_rounds import ToolResult
from app.chat.transcript import Transcript
from app.chat.turn_progress import TurnProgress
from app.messages import Message
from app.sanitize import clean_line
from runtime.protocol import Loaded


async def store_answer(transcript: Transcript, progress: TurnProgress, loaded: Loaded | None) -> None:
    """Store the newest answer once, whatever it came to; of one that said nothing its question is marked."""
    if progress.is_stored:
        return
    progress.is_stored = True
    answer = progress.answer
    asked = transcript.messages[-1]
    if answer.is_empty and answer.outcome in ("cancelled", "failed"):
        if answer.outcome == "failed" and not transcript.is_answered:
            await transcript.mark_head("failed")
        return
    if asked.status == "failed":
        await transcript.mark_head("complete")
    message = Message(
        asked.conversation_id,
        asked.id,
        "assistant",
        answer.content,
        reasoning=answer.reasoning,
        tool_calls=tuple(answer.tool_calls),
        generated_ids=answer.generated_ids,
        tokenizer_fingerprint=loaded.tokenizer_fingerprint if loaded and answer.generated_ids else "",
        status=answer.status,
        model_name=clean_line(loaded.model_name) if loaded else "",
        malformed_calls=tuple(answer.malformed_calls),
    )
    await transcript.append(message)
    progress.message_id = message.id


async def store_results(transcript: Transcript, results: Sequence[ToolResult]) -> None:
    """Store what the model is to read of its calls, in their order."""
    for result in results:
        head = transcript.messages[-1]
        message = Message(
            head.conversation_id,
            head.id,
            "tool",
            result.text,
            tool_name=result.name,
            tool_status=result.status,
            full_result=result.full_text,
        )
        await transcript.append(message)
