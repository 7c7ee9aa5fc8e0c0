"""Selection and attention ops against a loop over queries."""

import pytest
import torch

from runtime.kernels.torch_ops.attention import (
    attend_causal,
    block_scores,
    first_of_equals,
    select_blocks,
    selected_tokens,
)


@pytest.mark.parametrize(("start", "num_tokens"), [(0, 1), (0, 130), (57, 66), (200, 1)])
def test_causal_attention_equals_a_loop(start: int, num_tokens: int) -> None:
    torch.manual_seed(0)
    q, end = torch.randn(num_tokens, 6, 10), start + num_tokens
    k, v = torch.randn(end, 2, 10), torch.randn(end, 2, 10)
    selected = torch.rand(num_tokens, end) < 0.5
    selected[torch.arange(num_tokens), torch.arange(start, end)] = True
    output = attend_causal(q, k, v, 0.3, start, selected)
    for i in range(num_tokens):
        visible = selected[i, : start + i + 1].nonzero().flatten()
        for head in range(6):
            weights = torch.softmax(k[visible, head // 3] @ q[i, head] * 0.3, 0)
            expected = weights @ v[visible, head // 3]
            assert torch.allclose(output[i, head * 10 : head * 10 + 10], expected, atol=1e-5)


def test_selection_keeps_the_best_complete_blocks_and_the_tail() -> None:
    torch.manual_seed(1)
    size, budget, start, num_tokens = 4, 3, 5, 40
    num_complete = torch.arange(start + 1, start + num_tokens + 1) // size
    scores = block_scores(torch.randn(num_tokens, 2, 8), torch.randn(int(num_complete[-1]), 8))
    blocks = select_blocks(scores, num_complete, budget)
    mask = selected_tokens(blocks, num_complete, size, start + num_tokens)
    for i in range(num_tokens):
        count, visible = int(num_complete[i]), start + i + 1
        best = set(scores[i, :count].topk(min(budget, count)).indices.tolist())
        expected = {t for t in range(visible) if t // size in best or t >= count * size}
        assert set(mask[i, :visible].nonzero().flatten().tolist()) == expected


def test_few_blocks_are_all_selected() -> None:
    assert select_blocks(torch.zeros(2, 3), torch.tensor([2, 3]), 5).tolist() == [[True, True, False], [True] * 3]


def test_the_first_of_equal_blocks_win_on_a_gpu() -> None:
    scores = torch.tensor([[0.0, 2.0, 0.0, 1.0, 0.0], [3.0, 3.0, 3.0, 3.0, 4.0]])
    assert first_of_equals(scores, 3).tolist() == [[1, 3, 0], [4, 0, 1]]
