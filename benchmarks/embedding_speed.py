"""Queries a second of one core at equal bytes: Hamming, asymmetric, and Faiss's scan of PQ codes."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import faiss
import numpy as np
from bitfleet.tasks.kernels.weighted import nearest_weighted_reference
from bitfleet.tasks.random import stream
from embedding_cells import draw_split

if TYPE_CHECKING:
    from collections.abc import Callable

_COPIES = 20
_FLIPPED = 0.05
_K = 100
_ROUNDS = 5
_QUERIES, _FEW = 256, 16


def measure_speed(sizes: list[int]) -> None:
    """Print, for each size, the median of several runs in turn, in CPU time of this thread.

    The codes are 20 copies of those of the base, a twentieth of all bits flipped; the time depends on their
    number far more than on what they are.
    """
    split = draw_split(0)
    for n_bytes in sizes:
        model = bf.LSH(n_bits=8 * n_bytes, random_state=0).fit(split.train)
        packed = np.concatenate([_flipped(model.encode(split.base), copy) for copy in range(_COPIES)])
        index = bf.CodeIndex(packed)
        codes = model.encode(split.queries[:_QUERIES])
        reals = bf.projections(model, split.queries[:_QUERIES])
        peer = faiss.IndexPQ(split.base.shape[1], n_bytes, 8)
        peer.train(split.train)
        stored = np.tile(peer.sa_encode(split.base), (_COPIES, 1))
        peer.add_sa_codes(stored)
        whole = np.rint(reals[:8] * 2**30).astype(np.int64)
        runs: dict[str, tuple[Callable[[], Any], int]] = {
            "symmetric": (lambda i=index, c=codes: i.search(c, _K), _QUERIES),
            "asymmetric": (lambda i=index, r=reals: i.search(r, _K, asymmetric=True), _QUERIES),
            "asymmetric, one at a time": (
                lambda i=index, r=reals: [i.search(r[q : q + 1], _K, asymmetric=True) for q in range(4)],
                4,
            ),
            "asymmetric, NumPy": (lambda w=whole, p=packed: nearest_weighted_reference(w, p, _K), len(whole)),
            "faiss_pq": (lambda p=peer: p.search(split.queries[:_FEW], _K), _FEW),
        }
        for name, seconds in _timed(runs).items():
            line = {
                "benchmark": "embeddings",
                "speed": name,
                "n_bytes": n_bytes,
                "rows": len(packed),
                "k": _K,
                "queries_per_second": round(1 / seconds, 1),
            }
            print(json.dumps(line), flush=True)


def _flipped(packed: np.ndarray, copy: int) -> np.ndarray:
    rng = stream(0, "embeddings.flipped", block=copy)
    return packed ^ np.packbits(rng.random((len(packed), 8 * packed.shape[1]), np.float32) < _FLIPPED, axis=1)


def _timed(runs: dict[str, tuple[Callable[[], Any], int]]) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(_ROUNDS + 1):
        for name, (run, n_queries) in runs.items():
            if name == "asymmetric, NumPy" and round_ > 1:
                continue
            begin = time.thread_time()
            run()
            if round_:  # the first warms up
                seconds[name].append((time.thread_time() - begin) / n_queries)
    return {name: float(np.median(times)) for name, times in seconds.items()}
