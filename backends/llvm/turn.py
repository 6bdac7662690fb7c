"""A square of elements of four bytes turned in registers: rows become columns.

    rows (a0 a1 a2 a3), (b0 ..), (c0 ..), (d0 ..)   ->   columns (a0 b0 c0 d0), (a1 b1 c1 d1), ..

Within each 128 bits, two steps of interleaving make columns of four rows; then whole quarters of vectors are put together. Every
shuffle is one that processors have as an instruction without a table of indices.
"""

from __future__ import annotations

from collections.abc import Sequence

from tlc.backends.llvm.code import Code

QUAD = 4  # elements in 128 bits


def turned(code: Code, rows: Sequence[str], type: str) -> list[str]:
    """The columns of as many rows as a vector of this type has elements: 4, 8 or 16."""
    n = len(rows)

    def shuffle(a: str, b: str, picks: Sequence[int]) -> str:
        """One vector of two; picks from n on are of the second."""
        return code.shared(f"shufflevector {type} {a}, {type} {b}, <{n} x i32> <{', '.join(f'i32 {p}' for p in picks)}>")

    def within(a: str, b: str, picks: Sequence[tuple[int, int]]) -> str:
        """The same picks, of a (0) or b (1), in each 128 bits."""
        return shuffle(a, b, [base + at + side * n for base in range(0, n, QUAD) for side, at in picks])

    def quads(a: str, b: str, picks: Sequence[int]) -> str:
        """Whole 128 bits: half of the picks are of a, then half of b."""
        half = len(picks) // 2
        return shuffle(a, b, [QUAD * p + k + (n if at >= half else 0) for at, p in enumerate(picks) for k in range(QUAD)])

    groups = []  # for each four rows, in each 128 bits their elements of one column: columns c, c + 4, ..
    for k in range(0, n, QUAD):
        one, two, three, four = rows[k : k + QUAD]
        low, high = [(0, 0), (1, 0), (0, 1), (1, 1)], [(0, 2), (1, 2), (0, 3), (1, 3)]
        first, second = [(0, 0), (0, 1), (1, 0), (1, 1)], [(0, 2), (0, 3), (1, 2), (1, 3)]
        pairs = [(within(one, two, half), within(three, four, half)) for half in (low, high)]
        groups.append([within(p, q, picks) for p, q in pairs for picks in (first, second)])
    if n == QUAD:
        return groups[0]
    if n == 2 * QUAD:
        return [quads(groups[0][c], groups[1][c], [half, half]) for half in (0, 1) for c in range(QUAD)]
    columns: dict[int, str] = {}
    for c in range(QUAD):
        a, b, x, y = (group[c] for group in groups)
        for odd in (0, 1):
            both = [odd, odd + 2, odd, odd + 2]
            p, q = quads(a, b, both), quads(x, y, both)
            columns[QUAD * odd + c] = quads(p, q, [0, 2, 0, 2])
            columns[QUAD * (odd + 2) + c] = quads(p, q, [1, 3, 1, 3])
    return [columns[c] for c in range(n)]
