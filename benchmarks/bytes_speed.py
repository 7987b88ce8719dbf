"""Queries a second of one core at equal bytes: packed codes by look-up, and Faiss's scan of PQ codes."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import faiss
import numpy as np
from bytes_cells import draw_split
from bytes_ours import code_shape

if TYPE_CHECKING:
    from collections.abc import Callable

_K, _ROUNDS, _FEW, _TRAIN = 100, 5, 8, 3_000


def measure_speed(sizes: list[int]) -> None:
    """Print, for each size, the best of several runs in turn, in CPU time of this thread.

    Both are trained on few rows: the time of a search does not depend on what codes mean.
    """
    split = draw_split("sentences", 0)
    for n_bytes in sizes:
        shape = code_shape(n_bytes)
        if shape is None:
            continue
        coder = bf.SparseCoding(*shape[:1], n_active=shape[1], n_iter=1, center=False, random_state=0)
        coder.fit(split.train[:_TRAIN])
        index = bf.ActiveIndex(coder, metric="cosine").add(split.base)
        lean = bf.ActiveIndex(coder, metric="cosine", keep_norms=False)
        lean._parts, lean.n_rows = index._parts, index.n_rows
        peer = faiss.IndexPQ(split.base.shape[1], n_bytes, 8)
        peer.train(split.train[:_TRAIN])
        peer.add(split.base)
        runs: dict[str, tuple[Callable[[], Any], int]] = {
            "packed codes": (lambda i=index: i.search(split.queries, _K), len(split.queries)),
            "packed codes, keep_norms=False": (
                lambda i=lean: i.search(split.queries, _K),
                len(split.queries),
            ),
            "packed codes, one at a time": (
                lambda i=index: [i.search(split.queries[q : q + 1], _K) for q in range(_FEW)],
                _FEW,
            ),
            "Faiss PQ": (lambda p=peer: p.search(split.queries, _K), len(split.queries)),
            "Faiss PQ, one at a time": (
                lambda p=peer: [p.search(split.queries[q : q + 1], _K) for q in range(_FEW)],
                _FEW,
            ),
        }
        for name, seconds in _timed(runs).items():
            line = {"speed": name, "n_bytes": n_bytes, "rows": len(split.base), "k": _K}
            line["queries_per_second"] = round(1 / seconds, 1)
            print(json.dumps({"benchmark": "bytes", **line}), flush=True)


def _timed(runs: dict[str, tuple[Callable[[], Any], int]]) -> dict[str, float]:
    seconds = dict.fromkeys(runs, np.inf)
    for round_ in range(_ROUNDS + 1):
        for name, (run, n_queries) in runs.items():
            begun = time.thread_time()
            run()
            if round_:  # the first warms up
                seconds[name] = min(seconds[name], (time.thread_time() - begun) / n_queries)
    return seconds
