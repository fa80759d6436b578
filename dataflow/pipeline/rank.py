"""Which data-parallel rank this process is."""

from __future__ import annotations

import logging
import os
from typing import Any, NamedTuple

import torch.distributed

from dataflow.errors import OptionError

logger = logging.getLogger(__name__)


class Rank(NamedTuple):
    """A data-parallel coordinate: rank `rank` of `ranks`."""

    rank: int
    ranks: int


def find_rank(rank: int | str | None, world_size: int | None, mesh: Any = None) -> Rank:
    """The rank as given, else from torch.distributed, else from RANK and WORLD_SIZE, else 0 of 1.

    Args:
        rank: Number of the rank; "slurm" takes both numbers from Slurm's variables.
        world_size: Number of data-parallel ranks.
        mesh: A `DeviceMesh` of the data-parallel dimensions: its coordinate counts, since ranks that differ only in
            tensor or pipeline parallelism need the same batches. Of a larger mesh pass the part, as `mesh["dp"]`.

    Raises:
        OptionError: only one of the numbers is given, or they do not fit.
    """
    if mesh is not None:
        if rank is not None or world_size is not None:
            raise OptionError("mesh= gives the rank: leave out rank= and world_size=")
        return _checked(*_mesh_rank(mesh))
    if rank == "slurm":
        return _checked(_variable("SLURM_PROCID"), world_size or _variable("SLURM_NTASKS"))
    if isinstance(rank, str):
        raise OptionError(f"rank={rank!r}: give a number, or 'slurm' to use Slurm's variables")
    if (rank is None) != (world_size is None):
        raise OptionError(f"rank={rank} and world_size={world_size}: give both or neither")
    if rank is not None and world_size is not None:
        return _checked(rank, world_size)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Rank(torch.distributed.get_rank(), torch.distributed.get_world_size())
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        found = _checked(_variable("RANK"), _variable("WORLD_SIZE"))
        logger.info("rank %d of %d, from RANK and WORLD_SIZE", *found)
        return found
    return Rank(0, 1)


def local_ranks() -> int:
    """Processes of this job on this host, as launchers say; 1 where they do not."""
    value = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, int(value)) if value.isdigit() else 1


def _mesh_rank(mesh: Any) -> tuple[int, int]:
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise OptionError("this process is not part of mesh=: pass the mesh that it belongs to")
    rank, ranks = 0, 1
    for at, size in zip(coordinate, mesh.shape, strict=True):
        rank, ranks = rank * size + at, ranks * size
    other = {"tp", "pp", "cp", "tensor", "pipeline", "model", "context"} & set(mesh.mesh_dim_names or ())
    if other:
        raise OptionError(
            f"mesh= has the dimensions {sorted(other)}, whose ranks share batches: pass the data-parallel part, as "
            "mesh['dp']"
        )
    return rank, ranks


def _variable(name: str) -> int:
    value = os.environ.get(name)
    if value is None or not value.lstrip("-").isdigit():
        raise OptionError(f"{name}={value!r} is not a number: set it, or give rank= and world_size=")
    return int(value)


def _checked(rank: int, ranks: int) -> Rank:
    if not (type(rank) is int and type(ranks) is int and 0 <= rank < ranks):
        raise OptionError(f"rank={rank!r} of world_size={ranks!r}: ranks are 0 to world_size - 1")
    return Rank(rank, ranks)
