"""Groups: the number of ranks, this rank, and the store that they share."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from typing import Any

from hipplan.errors import reason_of
from hipplan.language.rank import RANKS_MAX
from hipplan.plain import number
from hipplan.ranks import mpi, ray_store
from hipplan.ranks.stores import ANSWER_S, FolderStore, Store, StoreLost, TorchStore
from hipplan.ranks.words import refused

_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
"""The variables of torchrun, Open MPI, MPICH and Slurm."""
_CONNECT_S = 30.0
"""How long torchrun's store may take to answer at first."""


class Group:
    """The ranks that apply plans together. Every rank makes its own, over the same store.

    All ranks make the same calls in the same order, as with every collective.
    """

    def __init__(self, store: Store, rank: int, size: int, local_rank: int | None = None) -> None:
        """Raises SettingError (HP434) for a rank that the group does not have."""
        for what, value in (("rank", rank), ("size", size), ("local_rank", local_rank)):
            if isinstance(value, bool) or not isinstance(value, (int, type(None))):
                raise TypeError(f"{what} must be a whole number, not {value!r}"[:200])
        if not 0 < size <= RANKS_MAX or not 0 <= rank < size:
            raise refused(
                f"there is no rank {rank} of {size}", f"a group has 1 to {RANKS_MAX} ranks, which count from 0"
            )
        self.store = store
        self.rank = rank
        self.size = size
        self.local_rank = local_rank
        """From the launcher; None: counted within the node."""
        self._calls = 0
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"<hipplan.Group: rank {self.rank} of {self.size}>"

    def next_call(self) -> int:
        """The number of the call that begins, the same in all ranks.

        Raises SettingError (HP434) in a forked child, which must not speak for its parent.
        """
        if os.getpid() != self._process:
            raise refused(
                "this is a forked child of a rank",
                "a child would use its parent's rank",
                "make a new group in the child",
            )
        with self._lock:
            self._calls += 1
            return self._calls


def group(
    over: Any = "torch", rank: int | None = None, size: int | None = None, *, local_rank: int | None = None
) -> Group:
    """The group that this process is a rank of.

    over: a folder that all ranks see, new for each run; "torch", for the store of torchrun, or a Store of
    torch.distributed; "mpi", for MPI.COMM_WORLD, or a communicator of mpi4py; or the handle that ray_store.start()
    returned. rank, size: a communicator knows them; default: from the variables of torchrun, mpirun or srun, as
    local_rank.

    Raises SettingError (HP434): it cannot be used, or the rank is unknown.
    """
    if local_rank is None and any(os.environ.get(name) for name in _LOCAL):
        local_rank = _from_environment(_LOCAL, "local rank")
    local_rank = None if local_rank is None else number(local_rank)
    if isinstance(over, str) and over == "mpi":
        over = mpi.world()
    if mpi.is_communicator(over):
        if rank is not None or size is not None:
            raise refused(
                "rank and size come from the communicator", "the communicator knows the rank", "leave them out"
            )
        return _of_communicator(over, local_rank)
    rank = _from_environment(_RANK, "rank of this process") if rank is None else number(rank)
    size = _from_environment(_SIZE, "size of the group") if size is None else number(size)
    if isinstance(over, str) and over == "torch":
        over = _torchrun_store(size)
    if isinstance(over, (str, os.PathLike)):
        try:
            if not os.fspath(over):
                raise ValueError("its name is empty")
            store: Store = FolderStore(over)
        except (OSError, ValueError) as error:
            hint = "use a new folder for each run, owned by you and visible to all ranks"
            raise refused(f"the folder {os.fspath(over)!r} cannot be used", reason_of(error), hint) from None
    elif callable(getattr(over, "compare_set", None)):
        store = TorchStore(over, f"hipplan/{_run_id(os.environ)}/")
    elif ray_store.is_handle(over):
        store = ray_store.RayStore(over)
    else:
        kinds = 'pass a folder, "torch", "mpi", a Store, a communicator, or what ray_store.start() returned'
        raise refused(f"{type(over).__name__} is not a group", kinds)
    return Group(store, rank, size, local_rank)


def _of_communicator(communicator: Any, local_rank: int | None) -> Group:
    try:
        store = mpi.MpiStore(communicator)
    except StoreLost as lost:
        raise refused("the communicator cannot be used", str(lost)) from None
    return Group(store, store.rank, store.size, local_rank)


def _from_environment(names: tuple[str, ...], what: str) -> int:
    for name in names:
        text = os.environ.get(name, "")
        if text.isdecimal() and len(text) < 10:
            return int(text)
        if text:
            raise refused(
                f"the environment variable {name} is not a number from 0: {text[:40]!r}", f"it sets the {what}"
            )
    why = f"none of {', '.join(names)} is set"
    hint = "start it with torchrun, mpirun or srun, or set RANK and WORLD_SIZE"
    raise refused(f"the {what} is unknown", why, hint)


def _torchrun_store(size: int) -> Any:
    """A connection to the store that torchrun serves."""
    try:
        connected = import_module("torch.distributed").TCPStore
    except ImportError as error:
        raise refused("the group torch needs PyTorch", str(error), "install torch, or use a folder") from None
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if not address or not port.isdecimal():
        raise refused("the group torch needs torchrun", "MASTER_ADDR and MASTER_PORT are not set", "use torchrun")
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":  # one that a rank serves would end with that rank
        why = "its agent provides no store that outlives the ranks (TORCHELASTIC_USE_AGENT_STORE)"
        raise refused("the group torch needs torchrun", why, "use torchrun, or pass a Store or a folder")
    try:
        made = connected(address, int(port), size, is_master=False, timeout=timedelta(seconds=_CONNECT_S))
        made.set_timeout(timedelta(seconds=ANSWER_S))
        return made
    except Exception as error:  # torch has no class for all that can go wrong with a connection
        raise refused(f"the store at {address}:{port} cannot be reached", str(error)[:200]) from None


def _run_id(environment: Mapping[str, str]) -> str:
    """A store may serve several runs: torchrun starts its ranks again when one fails."""
    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    return "-".join(environment.get(name, "0") for name in names)
