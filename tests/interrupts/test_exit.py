"""The end of the interpreter, and forks in places where nobody forks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interrupts.test_library import at_exit


def test_what_a_dropped_layout_left_behind_is_told_at_exit(tmp_path: Path) -> None:
    err, _ = at_exit(tmp_path, """
layout = hipplan.apply(QUICKSTART, runtime="sim")
layout.runtime.arm_faults("hipFree@1=hipErrorUnknown")
del layout
""")  # fmt: skip

    assert "not given back: hipFree(" in err
    assert "'table'" in err


@pytest.mark.parametrize("where", ["hipDeviceSynchronize", "hipMemUnmap"])
def test_a_child_that_a_handler_forks_while_its_parent_gives_back_goes_on_without(where: str, tmp_path: Path) -> None:
    err, trace = at_exit(tmp_path, f"""
layout = hipplan.apply(QUICKSTART, runtime="sim")
layout.runtime.arm_faults("{where}@1=delay:400")
children = []
signal.signal(signal.SIGINT, lambda number, frame: children.append(os.fork()))
interrupt_after(0.2)
layout.close()
if children == [0]:
    os._exit(42)
assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 42
""")  # fmt: skip

    assert "Traceback" not in err
    for made, given_back in (("hipMemCreate", "hipMemRelease"), ("hipMemMap", "hipMemUnmap")):
        assert trace.count(f'"{given_back}"') == trace.count(f'"{made}"') == 2
