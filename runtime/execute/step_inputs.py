"""A plan's ids as the tensors of one forward pass. The only place where planned ids become tensors."""

import torch

from runtime.layers.step import Segment, StepInputs
from runtime.schedule.step_plan import StepPlan


def build_step_inputs(plan: StepPlan, device: torch.device) -> StepInputs:
    """Tokens of all segments one after another; `logit_rows` index them."""
    token_ids: list[int] = []
    positions: list[int] = []
    logit_rows: list[int] = []
    segments = []
    for planned in plan.segments:
        logit_rows.extend(len(token_ids) + offset for offset in planned.logit_offsets)
        token_ids.extend(planned.token_ids)
        positions.extend(range(planned.start, planned.end))
        page_table = torch.tensor(planned.page_ids, dtype=torch.int64, device=device)
        length = len(planned.token_ids)
        segments.append(Segment(page_table, planned.state_row, planned.start, length, planned.save_row))
    return StepInputs(
        token_ids=torch.tensor(token_ids, dtype=torch.int64, device=device),
        positions=torch.tensor(positions, dtype=torch.int64, device=device),
        segments=tuple(segments),
        logit_rows=torch.tensor(logit_rows, dtype=torch.int64, device=device),
        is_decode=plan.is_decode,
    )
