"""HTML that escapes what it is given: only what was made here passes as it stands."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["Safe", "data_block", "joined", "prose", "table", "tag"]


class Safe(str):
    """HTML that is escaped already."""

    __slots__ = ()


def tag(name: str, *children: str | None, **attributes: str | bool | None) -> Safe:
    """An element; text is escaped, and a last underscore of an attribute's name falls away.

    Examples
    --------
    >>> tag("p", "a < b", tag("b", "!"), class_="note", hidden=True)
    '<p class="note" hidden>a &lt; b<b>!</b></p>'
    """
    found = [name]
    for key, value in attributes.items():
        plain = key.rstrip("_").replace("_", "-")
        if value is True:
            found.append(plain)
        elif value is not None and value is not False:
            found.append(f'{plain}="{html.escape(value)}"')
    return Safe(f"<{' '.join(found)}>{joined(children)}</{name}>")


def joined(children: Iterable[str | None]) -> Safe:
    """One after the other; None is left out."""
    texts = (child if isinstance(child, Safe) else html.escape(child) for child in children if child is not None)
    return Safe("".join(texts))


def data_block(name: str, kind: str, text: str) -> Safe:
    r"""Data inside a page for its script to read; JSON stays JSON, and nothing in it can end the block.

    Examples
    --------
    >>> print(data_block("x", "application/json", '"</script>"'))
    <script type="application/json" id="x">"\u003c/script\u003e"</script>
    """
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Safe(f'<script type="{html.escape(kind)}" id="{html.escape(name)}">{text}</script>')


def prose(text: str) -> str:
    r"""Text whose per cent signs stay with their numbers.

    Examples
    --------
    >>> prose("95 % of them")
    '95\xa0% of them'
    """
    return text.replace(" %", "\u00a0%")


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: Sequence[int] = (), name: str = "table"
) -> Safe:
    """A table that scrolls within itself where it is too large; the first cell of a row heads it.

    Parameters
    ----------
    caption
        What it shows; for those who hear the page.
    heads
        Names of the columns.
    rows
        Cells as they are to be read.
    words
        Columns that hold words and not numbers; they stand at the left and may be broken.
    name
        Class of the table: ``cards`` becomes one card for each row on a narrow screen.
    """

    def kind(column: int) -> str | None:
        return "word" if column in words else None

    head = tag("tr", *(tag("th", text, scope="col", class_=kind(column)) for column, text in enumerate(heads)))
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row", class_=kind(0)),
            *(
                tag("td", text, class_=kind(column), data_head=heads[column])
                for column, text in enumerate(row[1:], start=1)
            ),
        )
        for row in rows
    ]
    inner = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body), class_=name)
    return tag("div", inner, class_="box", tabindex="0", role="region", aria_label=caption)
