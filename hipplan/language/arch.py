"""Instruction sets of GPUs, as the runtime names them: gfx942, gfx942:sramecc+:xnack-, sm_90.

AMD's names are target IDs: a feature that is not named may be on or off. Source: LLVM, User Guide for AMDGPU Backend.
"""

from __future__ import annotations

import re

PATTERN = r"^[a-z0-9_]+(:[a-z]+[+-])*$"


def mistake_in(arch: str) -> tuple[str, str] | None:
    """(what is wrong, what to do) with an instruction set in a plan; None: nothing."""
    if not re.fullmatch(PATTERN, arch):
        lower = arch.lower()
        form = lower if re.fullmatch(PATTERN, lower) else "it as gfx942, or gfx942:xnack-"
        return f"'{arch}' is not an instruction set", f"write {form}"
    features = [feature[:-1] for feature in arch.split(":")[1:]]
    twice = next((feature for feature in features if features.count(feature) > 1), None)
    return None if twice is None else (f"'{arch}' names {twice} twice", "keep one")


def has_arch(have: str, wanted: str, *, xnack: bool | None = None) -> bool:
    """Whether a device with the instruction set `have` is one that a plan or a lock wants.

    have: from a runtime, with all features that the device has; or from a profile, often without any: those are not
    known, and accepted. xnack: of the device, if it is known.
    """
    processor, *present = have.lower().split(":")
    wanted_processor, *required = wanted.lower().split(":")
    if processor != wanted_processor:
        return False
    if present:
        return set(required) <= set(present)
    return xnack is None or f"xnack{'-' if xnack else '+'}" not in required
