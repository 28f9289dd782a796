"""A compiled loop that finds the end of a row in a text file with quotes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evergraph.compiled import compiled

_QUOTE, _NEWLINE, _RETURN = b'"\n\r'


@compiled
def last_row_end(content: NDArray[np.uint8], delimiter: int) -> int:
    r"""Return the end of the last whole row, for content that starts with a row; 0 if there is none.

    As in Arrow's reader, a quote opens a cell only at its start.

    Examples
    --------
    >>> last_row_end(np.frombuffer(b'a,"x\ny"\nb,"', np.uint8), ord(","))
    8
    """
    end, place, at_start, quoted = 0, 0, True, False
    while place < len(content):
        byte = content[place]
        place += 1
        follows = content[place] if place < len(content) else 0
        if quoted:
            if byte == _QUOTE and follows == _QUOTE:  # one quote, written as two
                place += 1
            else:
                quoted = byte != _QUOTE
        elif byte == _QUOTE and at_start:
            quoted, at_start = True, False
        elif byte == _NEWLINE or (byte == _RETURN and place < len(content) and follows != _NEWLINE):
            end, at_start = place, True
        else:
            at_start = byte == delimiter
    return end
