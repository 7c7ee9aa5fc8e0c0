"""Paged attention and its indexer equal their twins at every kind of context; a row's bits are its own."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from runtime.kernels.torch_ops import attention_rows as twin
from runtime.kernels.torch_ops import rotary as rotary_twin
from runtime.kernels.triton_ops import attention, heads, indexer
from tests.support.row_independence import assert_rows_stand_alone, poison_new_memory

NUM_PAGES = 24


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    poison_new_memory(monkeypatch)


def make_page_table(num_rows: int, pages_per_row: int, device: torch.device) -> Tensor:
    """Pages of the pool in no order, every row its own."""
    pages = torch.randperm(NUM_PAGES, device=device)[: num_rows * pages_per_row]
    return pages.view(num_rows, pages_per_row)


def make_pool(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.randn(NUM_PAGES, *shape, device=device).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_write_rows(dtype: torch.dtype, device: torch.device) -> None:
    wide = torch.randn(4, 3 * 48 + 16, device=device)
    values = wide[:, : 3 * 48].view(4, 3, 48)
    table, positions = make_page_table(4, 3, device), torch.tensor([0, 63, 64, 191], device=device)
    pool = make_pool((64, 3, 48), dtype, device)
    expected = pool.clone()
    twin.write_rows(values, expected, table, positions)
    attention.write_rows(values, pool, table, positions)
    # The interpreter cuts bf16 off where hardware rounds.
    torch.testing.assert_close(pool, expected, rtol=2**-7 if dtype == torch.bfloat16 else 0, atol=0)


@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim", "half"), [(2, 1, 16, 8), (6, 3, 48, 8)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_place_heads(
    num_heads: int, num_kv_heads: int, head_dim: int, half: int, dtype: torch.dtype, device: torch.device
) -> None:
    # As a projection leaves them: one row after the other, with more behind.
    num_qk = num_heads + num_kv_heads
    wide = torch.randn(4, (num_qk + num_kv_heads) * head_dim + 16, device=device)
    qk, v = wide[:, :-16].view(4, -1, head_dim).split((num_qk, num_kv_heads), dim=1)
    scale = torch.rand(num_qk, head_dim, device=device)
    table, positions = make_page_table(4, 3, device), torch.tensor([0, 63, 64, 191], device=device)
    angles = rotary_twin.rotary_table(positions, torch.rand(half, device=device))
    pools = [make_pool((64, num_kv_heads, head_dim), dtype, device) for _ in range(2)]
    expected = [pool.clone() for pool in pools]
    wanted = twin.place_heads(qk, v, scale, 1e-6, angles, *expected, table, positions)
    result = heads.place_heads(qk, v, scale, 1e-6, angles, *pools, table, positions)
    torch.testing.assert_close(result, wanted)
    for pool, like in zip(pools, expected, strict=True):
        torch.testing.assert_close(pool, like, rtol=2e-3, atol=1e-5)

    def keys_of(rows: slice) -> Tensor:
        cos, sin = (part[rows] for part in angles)
        heads.place_heads(qk[rows], v[rows], scale, 1e-6, (cos, sin), *pools, table[rows], positions[rows])
        return pools[0].flatten(0, 1)[
            table[rows].gather(1, positions[rows, None] // 64)[:, 0] * 64 + positions[rows] % 64
        ]

    assert_rows_stand_alone(keys_of, 4)


@pytest.mark.parametrize(("block_tokens", "width", "half"), [(4, 16, 8), (4, 48, 8), (5, 80, 12), (1, 16, 4)])
def test_place_indexed_heads(block_tokens: int, width: int, half: int, device: torch.device) -> None:
    table, state_rows = make_page_table(4, 3, device), torch.tensor([4, 1, 0, 3], device=device)
    keys = make_pool((-(-64 // block_tokens), width), torch.float16, device)
    pending = torch.randn(5, block_tokens - 1, width, device=device)
    key_scale, query_scale, scale = (torch.rand(*shape, device=device) for shape in ((width,), (width,), (9, 32)))
    # As a projection leaves them: one row after the other.
    wide = torch.randn(4, 12 * 32 + 4 * width, device=device)
    qk, v, queries, raw = wide.split((9 * 32, 3 * 32, 3 * width, width), dim=1)
    pools, frequencies = [make_pool((64, 3, 32), torch.float16, device) for _ in range(2)], torch.rand(half).to(device)
    # Rows at every place of a block, among them the last, at page borders.
    for first in (0, 60, 127):
        positions = torch.arange(first, first + 4, device=device)
        angles = rotary_twin.rotary_table(positions, frequencies)
        block_angles = rotary_twin.rotary_table(positions - (block_tokens - 1), frequencies)

        def place(
            op: Callable[..., tuple[Tensor, Tensor]],
            positions: Tensor = positions,
            angles: tuple[Tensor, Tensor] = angles,
            block_angles: tuple[Tensor, Tensor] = block_angles,
            rows: slice = slice(0, 4),
        ) -> tuple[Tensor, ...]:
            own = tuple(part.clone() for part in (*pools, keys, pending))
            index = twin.IndexRows(
                queries.view(4, 3, width)[rows], query_scale, raw[rows], own[3], state_rows[rows], own[2], key_scale,
                (block_angles[0][rows], block_angles[1][rows]), block_tokens,
            )  # fmt: skip
            heads_and_values = qk.view(4, 9, 32)[rows], v.view(4, 3, 32)[rows]
            rotary, pages = (angles[0][rows], angles[1][rows]), (table[rows], positions[rows])
            return *op(*heads_and_values, scale, 1e-6, rotary, *own[:2], *pages, index), *own

        result, expected = place(heads.place_indexed_heads), place(twin.place_indexed_heads)
        for queried, wanted in zip(result[:2], expected[:2], strict=True):
            torch.testing.assert_close(queried, wanted)
        for pool, wanted in zip(result[2:5], expected[2:5], strict=True):
            torch.testing.assert_close(pool, wanted, rtol=2e-3, atol=1e-5)
        assert torch.equal(result[5], expected[5])
        alone = place(heads.place_indexed_heads, rows=slice(3, 4))
        assert all(torch.equal(part[3:], own) for part, own in zip(result[:2], alone[:2], strict=True))
        # Its last row finishes a block; the others' keys are what they were.
        places = table[3, positions[3] // 64], positions[3] % 64 // block_tokens
        assert torch.equal(result[4][places], alone[4][places])
        together = heads.place_heads(
            qk.view(4, 9, 32),
            v.view(4, 3, 32),
            scale,
            1e-6,
            angles,
            *(pool.clone() for pool in pools),
            table,
            positions,
        )
        assert torch.equal(result[0], together)


def selected_by_hand(
    q: Tensor, keys: Tensor, table: Tensor, position: int, budget: int, block_tokens: int
) -> list[int]:
    """Blocks of one row by definition: best scores first, equal ones by number."""
    num_complete = (position + 1) // block_tokens
    scores = []
    for block in range(num_complete):
        last = (block + 1) * block_tokens - 1
        key = keys[table[last // 64], last % 64 // block_tokens].double()
        scores.append(torch.relu(q.double() @ key).sum().item())
    order = sorted(range(num_complete), key=lambda block: (-scores[block], block))
    chosen = sorted(order[:budget])
    return chosen + [-1] * (budget - len(chosen))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("num_heads", "width", "budget", "block_tokens"), [(4, 32, 8, 4), (1, 48, 3, 5), (6, 16, 20, 1)]
)
def test_select_rows(
    num_heads: int, width: int, budget: int, block_tokens: int, dtype: torch.dtype, device: torch.device
) -> None:
    table = make_page_table(4, 4, device)
    keys = make_pool((-(-64 // block_tokens), width), dtype, device)
    q = torch.randn(4, num_heads, width, device=device)
    # Fewer blocks than the budget, exactly as many, one group more, and all that the table holds.
    positions = torch.tensor([1, budget * block_tokens - 1, budget * block_tokens + 16, 255], device=device)
    result = indexer.select_rows(q, keys, table, positions, budget, block_tokens)
    for row, position in enumerate(positions.tolist()):
        expected = selected_by_hand(q[row], keys, table[row], position, budget, block_tokens)
        assert result[row].tolist() == expected, row
    assert torch.equal(result, twin.select_rows(q, keys, table, positions, budget, block_tokens))
    alone = indexer.select_rows(q[3:], keys, table[3:], positions[3:], budget, block_tokens)
    assert torch.equal(result[3:], alone)


def test_equal_scores_go_to_the_lower_block(device: torch.device) -> None:
    table = make_page_table(1, 4, device)
    keys = torch.zeros(NUM_PAGES, 16, 16, device=device)
    position, q = torch.tensor([255], device=device), torch.ones(1, 4, 16, device=device)
    for select in (indexer.select_rows, twin.select_rows):
        assert select(q, keys, table, position, 20, 4)[0].tolist() == list(range(20))
    # Negative products count as zero, so that these 44 of 64 blocks tie as well.
    keys[table[0, 1:3].flatten()] = -1.0
    keys[table[0, 3], 4:] = 1.0
    for select in (indexer.select_rows, twin.select_rows):
        assert select(q, keys, table, position, 20, 4)[0].tolist() == [*range(8), *range(52, 64)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_many_equal_scores_are_chosen_alike(dtype: torch.dtype, device: torch.device) -> None:
    """Small whole numbers: their scores are exact in any order of sums, and most of them tie."""
    table = make_page_table(4, 4, device)
    keys = torch.randint(-1, 2, (NUM_PAGES, 16, 16), device=device).to(dtype)
    positions = torch.tensor([67, 110, 203, 255], device=device)
    for budget in (5, 16, 30):
        q = torch.randint(-1, 2, (4, 4, 16), device=device).float()
        result = indexer.select_rows(q, keys, table, positions, budget, 4)
        assert torch.equal(result, twin.select_rows(q, keys, table, positions, budget, 4))
        for row, position in enumerate(positions.tolist()):
            assert result[row].tolist() == selected_by_hand(q[row], keys, table[row], position, budget, 4)


TOLERANCE = {torch.bfloat16: 1e-4, torch.float16: 2e-5, torch.float32: 2e-5}
"""Queries and weights are taken in two parts of the pool's type."""


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "dtype"),
    [
        (1, 1, 16, torch.float16),
        (6, 2, 48, torch.bfloat16),
        (6, 2, 48, torch.float16),
        (6, 2, 48, torch.float32),
        (24, 1, 80, torch.bfloat16),
    ],
)
def test_attend_rows_to_everything(
    num_heads: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
) -> None:
    keys, values = (make_pool((64, num_kv_heads, head_dim), dtype, device) for _ in range(2))
    for lengths in ([1, 63, 64, 65], [200, 256, 2, 128]):
        table, positions = make_page_table(4, 4, device), torch.tensor(lengths, device=device) - 1
        # Past its own pages a table may hold anything that fits an int.
        table[torch.arange(4, device=device) * 64 > positions.unsqueeze(1)] = 1 << 40
        q = torch.randn(4, num_heads, head_dim, device=device) * 3
        gate = torch.randn(len(q), q.shape[1] * head_dim + 4, device=device)[:, 4:]
        gated = attention.attend_rows(q, keys, values, table, positions, head_dim**-0.5, gate=gate)
        expected = twin.attend_rows(q, keys, values, table, positions, head_dim**-0.5)
        torch.testing.assert_close(gated, expected * torch.sigmoid(gate), rtol=0, atol=TOLERANCE[dtype])
    result = attention.attend_rows(q, keys, values, table, positions, head_dim**-0.5)
    torch.testing.assert_close(result, expected, rtol=0, atol=TOLERANCE[dtype])
    torch.testing.assert_close(gated, result * torch.sigmoid(gate))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_rows_bits_are_its_own(dtype: torch.dtype, device: torch.device) -> None:
    keys, values = (make_pool((64, 2, 48), dtype, device) for _ in range(2))
    table, positions = make_page_table(4, 4, device), torch.tensor([70, 3, 63, 140], device=device)
    q = torch.randn(4, 6, 48, device=device)

    def run(rows: slice) -> Tensor:
        return attention.attend_rows(q[rows], keys, values, table[rows], positions[rows], 0.2)

    assert_rows_stand_alone(run, 4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("block_tokens", "budget"), [(4, 8), (5, 3)])
def test_attend_rows_to_selected_blocks(
    block_tokens: int, budget: int, dtype: torch.dtype, device: torch.device
) -> None:
    num_heads, num_kv_heads, head_dim = 6, 2, 48
    keys, values = (make_pool((64, num_kv_heads, head_dim), dtype, device) for _ in range(2))
    table, positions = make_page_table(4, 4, device), torch.tensor([0, 9, 64, 200], device=device)
    q = torch.randn(4, num_heads, head_dim, device=device)
    blocks = torch.full((4, budget), -1, dtype=torch.int64, device=device)
    for row, position in enumerate(positions.tolist()):
        num_complete = (position + 1) // block_tokens
        chosen = torch.randperm(num_complete, device=device)[:budget].sort().values
        blocks[row, : len(chosen)] = chosen
    scale = head_dim**-0.5
    expected = twin.attend_rows(q, keys, values, table, positions, scale, blocks, block_tokens)
    result = attention.attend_rows(q, keys, values, table, positions, scale, blocks, block_tokens)
    torch.testing.assert_close(result, expected, rtol=0, atol=TOLERANCE[dtype])
    alone = attention.attend_rows(q[2:3], keys, values, table[2:3], positions[2:3], scale, blocks[2:3], block_tokens)
    assert torch.equal(result[2:3], alone)


def test_bits_do_not_depend_on_what_the_page_table_could_hold(device: torch.device) -> None:
    keys, values = (make_pool((64, 2, 16), torch.float16, device) for _ in range(2))
    table, positions = make_page_table(2, 8, device), torch.tensor([70, 200], device=device)
    q = torch.randn(2, 4, 16, device=device)
    whole = attention.attend_rows(q, keys, values, table, positions, 0.25)
    assert torch.equal(whole, attention.attend_rows(q, keys, values, table[:, :4].contiguous(), positions, 0.25))
