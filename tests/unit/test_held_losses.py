"""What `hipplan replace` would lose: bytes that attached processes may have written, names and rights."""

from __future__ import annotations

import copy
import re
import shlex
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.machines.profiles import load_machine
from hipplan.program import held_losses
from hipplan.program.program import Program

MACHINE = load_machine("sim-2")
OLD: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "regions": {
        "weights": {"device": "gpu.0", "size": "4MiB", "chunk": "2MiB", "access": {"gpu.0": "rw", "gpu.1": "r"}},
        "cache": {"device": "gpu.0", "size": "4MiB", "access": {"gpu.0": "rw"}, "attached": "rw"},
        "table": {"size": "2MiB", "seal": True, "attached": "rw"},
        "only_read": {"size": "2MiB", "access": {"gpu.0": "r"}, "attached": "rw"},
    },
    "allocations": {"page": {"device": "gpu.1", "size": "2MiB", "count": 2}},
    "reservations": {
        "mail": {
            "access": {"gpu.1": "rw"},
            "mappings": [{"allocation": "page.0"}, {"allocation": "page.1", "attached": "rw"}],
        }
    },
    "contents": {"table": {"value": 1}},
}


def changed(path: str, value: Any = None) -> dict[str, Any]:
    """The plan with another value at a path of keys; without it if it is None."""
    plan = data = copy.deepcopy(OLD)
    *keys, last = path.split("/")
    for key in keys:
        data = data[key]
    if value is None:
        del data[last]
    else:
        data[last] = value
    return plan


def program_of(plan: dict[str, Any]) -> Program:
    return compile_plan(hipplan.load(plan), MACHINE)


def lost(new: dict[str, Any], given: Any = "r", access: Any = "plan") -> set[str]:
    """What is lost, as lines of the message."""
    return {*map(str, held_losses.losses_of_holder(program_of(OLD), program_of(new), given=given, access=access))}


@pytest.mark.parametrize(
    "new",
    [
        OLD,
        changed("contents/table/value", 2),
        changed("regions/cache/device", "gpu.0"),
        changed("regions/weights/size", "8MiB"),
        changed("regions/weights/size", "2MiB"),
        changed("regions/weights/chunk", "4MiB"),
        changed("regions/weights/access/gpu.1", "rw"),
        changed("regions/weights/attached", "rw"),
        changed("regions/more", {"size": "2MiB"}),
        changed("name", "other"),
    ],
)
def test_other_contents_sizes_and_places_lose_nothing(new: dict[str, Any]) -> None:
    assert lost(new) == set()


def test_bytes_are_lost_that_an_attached_process_could_write() -> None:
    by_plan = {
        "region cache: 4MiB that attached processes may have written",
        "region table: 2MiB that attached processes may have written",
        "allocation page.1: 2MiB that attached processes may have written",
    }
    assert lost(OLD, given="plan") == by_plan
    assert lost(OLD, given="rw", access="rw") == by_plan | {
        "region weights: 4MiB that attached processes may have written",
        "allocation page.0: 2MiB that attached processes may have written",
    }


@pytest.mark.parametrize(
    ("path", "name"),
    [("regions/weights", "region weights"), ("reservations/mail/mappings", "mapping mail[1]")],
)
def test_a_name_is_lost_that_the_new_plan_lacks(path: str, name: str) -> None:
    new = changed(path) if "mail" not in path else changed(path, [{"allocation": "page.0"}])
    assert f"{name}: is not in the new plan" in lost(new)


def test_a_tensor_that_goes_is_a_name_and_one_in_a_region_that_goes_is_not_a_second_one() -> None:
    old = changed("regions/cache/tensors", {"k": {"dtype": "f32", "shape": [1024]}})
    for new, name in ((OLD, "tensor cache.k"), (changed("regions/cache"), "region cache")):
        (loss,) = held_losses.losses_of_holder(program_of(old), program_of(new), given="r", access="plan")
        assert str(loss) == f"{name}: is not in the new plan"


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (changed("regions/weights/access/gpu.1", "none"), {"region weights: gpu.1 loses access"}),
        (changed("regions/cache/access/gpu.0", "r"), {"region cache: gpu.0 loses write access"}),
        (changed("regions/cache/attached", "r"), {"region cache: gpu.0 loses write access"}),
        (changed("reservations/mail/mappings", [{"allocation": "page.0"}, {"allocation": "page.1"}]),
         {"mapping mail[1]: gpu.1 loses write access"}),
        (changed("regions/weights/access/gpu.0", "r"), set()),  # attached processes have r at most
        (changed("regions/table/seal", False), set()),  # sealed memory can be unsealed
    ],
)  # fmt: skip
def test_a_right_is_lost_that_attached_processes_had(new: dict[str, Any], words: set[str]) -> None:
    assert lost(new) == {f"{text} in attached processes" for text in words}
    if "cache" in str(words):
        assert lost(new, access="r") == set()


def test_a_device_is_the_same_by_its_id_whatever_the_plan_calls_it() -> None:
    devices = {"left": {"ordinal": 0}, "right": {"ordinal": 1}}
    access = {"left": "rw", "right": "r"}
    old = {"hipplan": 1, "devices": devices, "regions": {"w": {"device": "left", "size": "2MiB", "access": access}}}
    same = {
        "hipplan": 1,
        "devices": {"gpu": {"count": 2}},
        "regions": {"w": {"size": "2MiB", "access": {"gpu.*": "r"}}},
    }
    less = copy.deepcopy(same) | {"regions": {"w": {"size": "2MiB", "access": {"gpu.0": "r"}}}}
    for new, words in ((same, []), (less, ["region w: right loses access in attached processes"])):
        losses = held_losses.losses_of_holder(program_of(old), program_of(new), given="r", access="plan")
        assert [*map(str, losses)] == words


def test_the_message_has_the_arguments_that_allow_it() -> None:
    old, new = program_of(OLD), program_of(changed("regions/cache/attached", "r"))
    with pytest.raises(ApplyError, match="HP423") as caught:
        held_losses.require_consent(old, new, given="plan", access="plan", lose=["weights"])
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.summary == "the new plan would lose bytes of 3 objects and 1 right"
    arguments = shlex.split(re.findall(r"add (.*)$", diagnostic.hint)[0])
    assert {*arguments[::2]} == {"--lose"}
    assert {*arguments[1::2]} == {"weights", "cache", "table", "page.1"}
    held_losses.require_consent(old, new, given="plan", access="plan", lose=arguments[1::2])
    held_losses.require_consent(old, new, given="plan", access="plan", lose=["*"])
