"""PyTorch's own tests of torch.cuda.MemPool, with every MemPool over one of hipplan's pools.

python -m tests.hardware.mempool_of_pytorch test_cuda.py [--runtime cuda]

test_cuda.py is PyTorch's test/test_cuda.py, of the release that is installed: whoever runs this fetches it. Each test
of its class TestMemPool runs once with PyTorch's own memory and once with hipplan's, each time in a process of its own.
Prints a line for each test, with the memory that the pool had mapped at its end, and how many pass with both. Tests
that read variables of an allocator that they compile are named and left out. Exit code: 1 if a test passes with
PyTorch's memory and not with hipplan's.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

OF_ITS_OWN_ALLOCATOR = {
    "test_mempool_empty_cache_inactive",
    "test_mempool_with_allocator",
    "test_tensor_delete_after_allocator_delete",
    "test_mempool_expandable",
}
PLAN = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 1}},
    "regions": {"pool": {"device": "gpu.0", "reserve": "8GiB", "chunk": "2MiB", "size": 0, "torch": {"tag": "pool"}}},
}
LONGEST_S = 120


def tests_in(file: Path) -> type[unittest.TestCase]:
    spec = importlib.util.spec_from_file_location("test_cuda", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["test_cuda"] = module
    spec.loader.exec_module(module)
    found: type[unittest.TestCase] = module.TestMemPool
    return found


def run_one(file: Path, name: str, runtime: str) -> int:
    """One test in this process. runtime: empty for PyTorch's own memory."""
    import torch

    import hipplan
    from hipplan.layout.pools_asleep import pool_of

    cases = tests_in(file)
    if not runtime:
        cases.get_dummy_allocator = _usual_allocator  # type: ignore[attr-defined]
        return _ran(cases(name))
    with hipplan.apply(PLAN, runtime=runtime) as layout:
        with layout.torch_pool("pool"):
            pass
        allocator = pool_of(layout._holding, "pool")._allocator
        usual = torch.cuda.MemPool

        class MemPool(usual):  # type: ignore[misc, valid-type]
            def __init__(self, given: Any = None, **more: Any) -> None:
                super().__init__(allocator.allocator() if given is None else given, **more)

        torch.cuda.MemPool = MemPool
        cases.get_dummy_allocator = lambda self, check_vars: (allocator, "")  # type: ignore[attr-defined]
        failed = _ran(cases(name))
        torch.cuda.MemPool = usual
        print(layout.usage().by_tag()["pool"]["mapped"])
        torch.cuda.empty_cache()
        layout.trim()
        return failed


def _usual_allocator(_: Any, check_vars: bool) -> tuple[Any, str]:
    """None is PyTorch's own."""

    class Usual:
        def allocator(self) -> None:
            return None

    return Usual(), ""


def _ran(case: unittest.TestCase) -> int:
    result = unittest.TextTestRunner(sys.stderr, verbosity=0).run(unittest.TestSuite([case]))
    return 0 if result.wasSuccessful() else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--runtime", default="cuda")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--usual", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        return run_one(given.file, given.one, "" if given.usual else given.runtime)
    names = unittest.TestLoader().getTestCaseNames(tests_in(given.file))
    here = [sys.executable, "-m", "tests.hardware.mempool_of_pytorch", str(given.file), "--runtime", given.runtime]
    counts = {"both": 0, "neither": 0, "PyTorch's memory alone": 0, "hipplan's memory alone": 0}
    for name in sorted({*names} - OF_ITS_OWN_ALLOCATOR):
        ran = [
            subprocess.run([*here, "--one", name, *usual], capture_output=True, text=True, timeout=LONGEST_S)
            for usual in (["--usual"], [])
        ]
        passed = [done.returncode == 0 for done in ran]
        word = {(True, True): "both", (False, False): "neither", (True, False): "PyTorch's memory alone"}
        outcome = word.get((passed[0], passed[1]), "hipplan's memory alone")
        counts[outcome] += 1
        mapped = ran[1].stdout.strip().rpartition("\n")[2]
        print(f"{name}: passes with {outcome}; {mapped or 0} bytes mapped", flush=True)
        for done in ran:
            if done.returncode:
                print("  " + "\n  ".join(done.stderr.splitlines()[-6:]), flush=True)
    left_out = sorted({*names} & OF_ITS_OWN_ALLOCATOR)
    print(", ".join(f"{count} pass with {outcome}" for outcome, count in counts.items()))
    print(f"left out, about an allocator of their own: {', '.join(left_out) or 'none'}")
    return 1 if counts["PyTorch's memory alone"] else 0


if __name__ == "__main__":
    sys.exit(main())
