"""What a job will take before it is run: rounds, bytes, operations, memory and time.

The method's first rounds are gone through with one block, the encoder is tried on a model of few rows, and
`plan_model` does the arithmetic.  Nothing is written but to a temporary folder, and no cluster is started.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cluster.serial import SerialExecutor
from ..cluster.threads import one_blas_thread
from ..cluster.worker import cache_bytes
from ..storage.chunks import stored_bytes
from ..storage.codes import create_codes
from ..storage.memory import MemoryCheckpoints
from ..storage.readers import ArrayReader, StoredBlock
from ..tasks.leaves import base_rows, plan_leaves
from ..tasks.protocols import BlockPair, LeafPlan, RowIndices, RowRange
from .arrays import as_dataset
from .config import as_job
from .errors import ConfigError
from .labelled import check_needed
from .opening import plan_of
from .plan_model import Hardware, Pass, pass_seconds, round_network_bytes, round_seconds
from .rehearsal import Rehearsal, go_through
from .train import train

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..storage.datasets import Dataset
    from ..storage.readers import DatasetReader
    from ..tasks.protocols import BlockAddress, BlockReader, Encoder, Method
    from .config import Job

TRAIN_SECONDS, ENCODE_SECONDS = 4.0, 2.0  # of the processor, after which no further round is tried
SAMPLE_ROWS = 4096
READ_BACK_BANDWIDTH = 400e6  # bytes a second of codes that the driver reads, hashes and compares in the end


def plan(
    job: str | os.PathLike[str] | Mapping[str, Any],
    *,
    rows: int | None = None,
    workers: int | None = None,
    threads: int | None = None,
    memory_limit: str | int | None = None,
    bandwidth: float | None = None,
    storage_bandwidth: float | None = None,
    speed: float = 1.0,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Tell what a job will take, from a calibration of some seconds on this machine.

    Parameters
    ----------
    job : path or mapping
        A job file, or what one holds, as tables.  Its data must be there; nothing of it is run.
    rows : int, optional
        Plan for so many rows that are like the data's; by default those that there are.
    workers, threads : int, optional
        Worker processes, and threads of each; 0 workers: this process.  By default what the job says.
    memory_limit : str or int, optional
        Of a worker, such as ``"4 GiB"``; by default what the job says.
    bandwidth : float, optional
        Bytes a second between two workers, 1.25e9 (10 Gbit/s) by default.
    storage_bandwidth : float, optional
        Bytes a second that all workers together read from storage; by default it keeps up.
    speed : float
        Of one core of the hardware that is meant, beside one of this machine's.
    settings : mapping of dotted key to value, optional
        Replace what the job says, such as ``{"method.n_bits": 64}``.

    Returns
    -------
    dict
        ``method``, ``rows``, ``features``, ``blocks``, ``block_rows``; ``workers``, ``threads_per_worker``;
        ``rounds`` and, of all of them, ``bytes_read`` (from storage), ``flop`` (of matrix products),
        ``network_bytes`` (of partial sums, at most), ``train_seconds``; None where the method cannot tell.
        ``worker_peak_bytes``, ``driver_peak_bytes``, ``kept_share`` (of the blocks that workers keep between
        rounds).  Where the job encodes, ``encode_seconds`` and ``code_bytes``.  ``seconds`` is the sum,
        without evaluation and without starting a cluster; ``calibration_seconds`` went into this answer.

    Raises
    ------
    ConfigError
        If the job is not valid, or workers of this memory limit could not do it.
    """
    begun = time.perf_counter()
    content = as_job(job, settings)
    if rows is not None and rows < 1:
        raise ConfigError(f"expected rows >= 1, got {rows}")
    measured = _measure(content, rows)
    there = _hardware(content, workers, threads, memory_limit, bandwidth, storage_bandwidth, speed)
    result = _of_training(measured, there)
    if content.encode is not None:
        result |= _of_encoding(content, measured, there, rows)
        result["seconds"] = _sum(result["train_seconds"], result["encode_seconds"])
    result["calibration_seconds"] = round(time.perf_counter() - begun, 2)
    return result


@dataclass(frozen=True)
class _Measured:
    dataset: Dataset
    method: Method
    leaves: LeafPlan
    rounds: int | None
    rehearsal: Rehearsal
    file_bytes: float  # of one block


def _measure(job: Job, rows: int | None) -> _Measured:
    dataset, method = as_dataset(job.data.path), job.build_method()
    check_needed(method, there=dataset.has_labels)
    reader: BlockReader = dataset.reader()
    leaves = plan_of(dataset, method, job.run.block_rows, job.run.fan_in)
    if rows is not None:
        leaves = plan_leaves(
            rows,
            dataset.n_features,
            min_leaves=method.min_leaves,
            block_rows=job.run.block_rows,
            fan_in=job.run.fan_in,
        )
        reader = Repeated(dataset.reader(), rows)
    rehearsal = go_through(method, reader, leaves, job.run.seed, TRAIN_SECONDS)
    files = stored_bytes(dataset.path / "vectors") / max(1, dataset.n_rows)
    block_rows = min(leaves.block_rows, leaves.n_rows)
    total = None if not rehearsal.rounds else method.rounds(rehearsal.state, leaves)
    return _Measured(dataset, method, leaves, total, rehearsal, files * block_rows)


def _hardware(
    job: Job,
    workers: int | None,
    threads: int | None,
    memory_limit: str | int | None,
    bandwidth: float | None,
    storage_bandwidth: float | None,
    speed: float,
) -> Hardware:
    """Return what was asked for, completed by what the job says and by this machine."""
    from ..cluster.limits import machine_share, n_bytes

    table, cores = job.cluster, len(os.sched_getaffinity(0))
    here = table.kind in ("local", "serial") and (workers is None or workers <= cores)
    if workers is None:
        workers = 0 if table.kind == "serial" else table.n_workers or cores
    threads = table.threads_per_worker if threads is None else threads
    checks = {"workers >= 0": workers >= 0, "threads >= 1": threads >= 1, "speed > 0": speed > 0}
    if wrong := [what for what, holds in checks.items() if not holds]:
        raise ConfigError(f"expected {' and '.join(wrong)}, got {workers=}, {threads=}, {speed=}")
    given = table.memory_limit if memory_limit is None else memory_limit
    try:
        limit = machine_share(threads) if given is None else n_bytes(str(given))
    except ValueError:
        raise ConfigError(f'expected a memory limit such as "4 GiB", got {given!r}') from None
    return Hardware(
        workers, threads, limit,
        1.25e9 if bandwidth is None else bandwidth,
        math.inf if storage_bandwidth is None else storage_bandwidth,
        speed, cores if here else None,
    )  # fmt: skip


def _of_training(measured: _Measured, there: Hardware) -> dict[str, Any]:
    rehearsal, leaves, needs = measured.rehearsal, measured.leaves, measured.rehearsal.needs
    if there.workers:
        needs.check(there.threads, there.memory_limit or 0, "a worker")
    keeping = there.workers * cache_bytes(there.memory_limit or 0)
    kept = min(1.0, keeping / max(1, needs.data_bytes))
    data = Pass(rehearsal.fetch, rehearsal.widen, measured.file_bytes, kept, leaves.fan_in)
    each = rehearsal.rounds
    if measured.rounds is not None and each:  # all others are like the last one that was gone through
        each = each[: measured.rounds] + [each[-1]] * (measured.rounds - len(each))
    known = measured.rounds is not None and bool(each)
    seconds = [round_seconds(costs, data, there, first=not i) for i, costs in enumerate(each)]
    blocks_read = [costs.n_leaves * (1 - kept if i else 1.0) for i, costs in enumerate(each)]
    flop = [None if costs.flop is None else costs.flop * costs.n_leaves for costs in each]
    sent = [round_network_bytes(costs, there, leaves.fan_in) for costs in each]
    train_seconds = round(sum(seconds), 2) if known else None
    return {
        "method": measured.method.name,
        "rows": leaves.n_rows,
        "features": measured.dataset.n_features,
        "blocks": len(leaves),
        "block_rows": leaves.block_rows,
        "workers": there.workers,
        "threads_per_worker": there.threads,
        "rounds": measured.rounds,
        "bytes_read": int(sum(blocks_read) * measured.file_bytes) if known else None,
        "flop": sum(f for f in flop if f is not None) if known and None not in flop else None,
        "network_bytes": sum(sent) if known else None,
        "worker_peak_bytes": needs.peak(there.threads, there.memory_limit if there.workers else None),
        "driver_peak_bytes": needs.driver_bytes,
        "kept_share": round(kept, 3),
        "seconds_of_last_round": round(seconds[-1], 3) if seconds else None,
        "train_seconds": train_seconds,
        "seconds": train_seconds,
    }


def _of_encoding(job: Job, measured: _Measured, there: Hardware, rows: int | None) -> dict[str, Any]:
    """Try an encoder on one block; its model is one of few rows, whose codes cost as much as any."""
    assert job.encode is not None
    encoded = as_dataset(job.encode.data or job.data.path)
    n_rows = encoded.n_rows if rows is None or job.encode.data else rows
    encoder = _small_encoder(measured.method, measured.dataset, job.run.seed)
    if encoder is None:
        return {"code_bytes": None, "encode_seconds": None}
    leaves = LeafPlan(n_rows, base_rows(encoded.n_features))
    scale = min(leaves.block_rows, n_rows) / max(1, min(measured.leaves.block_rows, measured.leaves.n_rows))
    of_block = _encode_seconds(encoder, encoded.reader(), active=job.encode.active)
    rehearsal = measured.rehearsal
    data = Pass(
        rehearsal.fetch * scale, rehearsal.widen * scale, measured.file_bytes * scale, 0.0, leaves.fan_in
    )
    width = -(-encoder.n_bits // 8) + (4 * (encoder.n_active or 0) if job.encode.active else 0)
    seconds = pass_seconds(len(leaves), of_block, data, there, slots=there.slots)
    return {
        "code_bytes": n_rows * width,
        "encode_seconds": round(seconds + n_rows * width / READ_BACK_BANDWIDTH, 2),
    }


def _small_encoder(method: Method, dataset: Dataset, seed: int) -> Encoder | None:
    """Return an encoder that was trained on the first rows, None if that takes too long or is refused."""
    block = dataset.reader().read(RowRange(0, min(SAMPLE_ROWS, dataset.n_rows)))
    reader, until = ArrayReader(block.vectors, block.labels), time.process_time() + ENCODE_SECONDS
    leaves = plan_leaves(reader.n_rows, reader.n_features, min_leaves=method.min_leaves)
    with suppress(Exception):  # there are fewer rows than the method wants, or no time
        state = train(
            method, reader, SerialExecutor(), MemoryCheckpoints(), leaves, seed,
            should_stop=lambda: time.process_time() > until,
        )  # fmt: skip
        return method.encoder(state)
    return None


def _encode_seconds(encoder: Any, reader: BlockReader, *, active: bool) -> float:
    """Return the processor seconds of encoding a block and of writing its codes."""
    rows = min(reader.n_rows, base_rows(reader.n_features))
    tried = reader.read(RowRange(0, min(rows, 4 * SAMPLE_ROWS))).vectors

    def encoded_to(path: Path) -> float:
        writer = create_codes(
            path,
            n_rows=len(tried), n_bits=encoder.n_bits, n_active=encoder.n_active, chunk_rows=len(tried),
            model_digest="", source_digest="", with_active=active,
        )  # fmt: skip
        begun = time.process_time()
        writer.write(0, encoder.encode(tried), encoder.active(tried) if active else None)
        return time.process_time() - begun

    with one_blas_thread(), tempfile.TemporaryDirectory(prefix="bitfleet-plan-") as folder:
        encoded_to(Path(folder) / "first.zarr")  # compiles and imports what it needs
        return encoded_to(Path(folder) / "second.zarr") * rows / max(1, len(tried))


@dataclass(frozen=True)
class Repeated:
    """A reader of as many rows as one likes: the first ones of ``reader``, again and again."""

    reader: DatasetReader
    n_rows: int

    @property
    def n_features(self) -> int:
        """Columns of a block's vectors."""
        return self.reader.n_features

    @property
    def dtype(self) -> str:
        """Type of a block's vectors in memory."""
        return self.reader.dtype

    def read(self, address: BlockAddress) -> Any:
        """Return a block of as many rows as the address names."""
        if isinstance(address, BlockPair):
            return self.read(address.left), self.read(address.right)
        if isinstance(address, RowIndices):
            return self.reader.read(RowIndices(tuple(row % self.reader.n_rows for row in address.rows)))
        return self.widen(self.fetch(address))

    def fetch(self, address: RowRange) -> StoredBlock:
        """Return the block of a row range as it would be stored."""
        n_rows = len(address)
        block = self.reader.fetch(RowRange(0, min(n_rows, self.reader.n_rows)))
        rows = np.arange(address.start, address.stop)
        if len(block.rows) == n_rows:
            return replace(block, rows=rows)
        labels = None if block.labels is None else np.resize(block.labels, n_rows)
        return StoredBlock(rows, np.resize(block.vectors, (n_rows, self.n_features)), labels)

    def widen(self, block: StoredBlock) -> StoredBlock:
        """Return a fetched block as `read` returns it."""
        return self.reader.widen(block)


def _sum(*seconds: float | None) -> float | None:
    known = [one for one in seconds if one is not None]
    return round(sum(known), 2) if len(known) == len(seconds) else None
