"""hipplan explain: what a diagnostic means."""

from __future__ import annotations

from typing import Annotated

import typer


def explain(code: Annotated[str, typer.Argument(metavar="HPnnn", help="The code of a diagnostic.")]) -> None:
    """Explain a diagnostic: what it means, why, a failing and a mended example."""
    from hipplan.errors import CODES
    from hipplan.explain import explain as page_of

    page = page_of(code)
    if page is None:
        raise typer.BadParameter(f"there is no code {code}; codes run from {min(CODES)} to {max(CODES)}")
    print(page, end="")
