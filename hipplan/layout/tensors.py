"""Many tensors of a layout in one call, as a framework takes them."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

from hipplan.errors import suggest_or_list
from hipplan.layout.holding import Holding
from hipplan.layout.views import Piece
from hipplan.plain import shown
from hipplan.program.lookup import tensors_in
from hipplan.program.patterns import required

Convert = Callable[[Piece], Any]
"""Makes an array or tensor of a Piece."""


def tensors_of(holding: Holding, name: str, convert: Convert | None) -> dict[str, Any]:
    """See Layout.tensors()."""
    chosen = _chosen(holding, name)
    make = convert or _from_dlpack()
    return {key: make(holding.piece(whole)) for key, whole in chosen.items()}


def _chosen(holding: Holding, name: str) -> dict[str, str]:
    """The key of each chosen tensor -> its name in the layout. Raises KeyError."""
    required(name, "the name of a region, or a pattern of names of tensors")
    state = holding.state
    tensors = [*tensors_in(state.program)]
    if name in state.program.regions:
        chosen = {tensor.name[len(name) + 1 :]: tensor.name for tensor in tensors if tensor.inside == name}
    else:
        chosen = {tensor.name: tensor.name for tensor in tensors if fnmatchcase(tensor.name, name)}
    if not chosen and name in state.program.regions:
        raise KeyError(f"the region '{name}' has no tensors")
    if not chosen:
        hint = suggest_or_list(name, [*state.program.regions])
        raise KeyError(f"the layout has no tensors '{shown(name)}'; {hint}")
    return chosen


def _from_dlpack() -> Convert:
    try:
        convert: Convert = import_module("torch").from_dlpack
    except ImportError:
        raise RuntimeError(
            "tensors() makes PyTorch's tensors, and PyTorch is not installed; pass convert=numpy.asarray, or another "
            "function of a Piece"
        ) from None
    return convert
