"""Rows in columns, as wide as a terminal allows. Pure."""

from collections.abc import Collection, Sequence

from .run import shortened, visible

LEAST_CELL = 10  # characters, however narrow the terminal


def columns(rows: Sequence[Sequence[str]], elastic: Collection[int] = (), width: int | None = None) -> str:
    """Rows under each other, as wide as they need.

    Arguments:
        elastic: columns whose cells are cut where they are too long: the widest first, to make the rows fit.
        width: of the rows; None cuts only what is very long.
    """
    if not rows:
        return ""
    shown = [[shortened(c) if index in elastic else visible(c) for index, c in enumerate(row)] for row in rows]
    widths = [max(len(row[index]) for row in shown) for index in range(len(shown[0]))]
    while width is not None and elastic and sum(widths) + 2 * (len(widths) - 1) > width:
        widest = max(elastic, key=lambda index: widths[index])
        if widths[widest] <= LEAST_CELL:
            break
        widths[widest] -= 1
    shown = [[shortened(cell, most) for cell, most in zip(row, widths, strict=True)] for row in shown]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in shown
    )
