"""Exports an allocation to another process as a file descriptor; there a plan's `bind:` imports it."""

from __future__ import annotations

from hipplan.layout.state import State
from hipplan.program.resources import Resource


def export(state: State, resource: Resource) -> int:
    """A new descriptor; see Layout.export()."""
    step = state.program.makers.get(resource.name)
    if step is None or not step.owns_memory:
        what = "an imported allocation" if resource.imported else f"a {resource.kind}"
        raise ValueError(f"'{resource.name}' is {what}: only allocations that the plan creates can be exported")
    if not step.is_shareable:
        raise ValueError(f"'{resource.name}' is private to this process: write shareable: posix_fd in the plan")
    return state.snapshot.share(state.slot(resource.name))
