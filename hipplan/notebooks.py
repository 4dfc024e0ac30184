"""Objects that show themselves in a notebook as the command shows them.

What an object looks like is text of the room `show`, which comes after the rooms of the objects: it is asked only when
a notebook shows one.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_SHOW = "hipplan.show.notebook"


class InNotebooks:
    """Makes an object show itself in IPython and Jupyter."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """IPython takes from this what it can display: text in a terminal, HTML in a notebook."""
        from html import escape  # slow to import, and a program is no notebook's yet

        text = import_module(_SHOW).text_of(self)
        return {"text/plain": text, "text/html": f'<pre style="line-height: 1.2">{escape(text)}</pre>'}

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]
