"""Processes that tests fork from one that has imported everything and run nothing."""

from __future__ import annotations

import multiprocessing

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.everything", "tests.conftest", "tests.ranks.workers", "tests.ranks.scripts"])
