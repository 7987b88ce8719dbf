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
        indexes = {
            "packed codes": bf.ActiveIndex(coder, metric="cosine"),
            "packed codes, keep_norms=False": bf.ActiveIndex(coder, metric="cosine", keep_norms=False),
            "packed codes, keep_lists=True": bf.ActiveIndex(coder, metric="cosine", keep_lists=True),
            "Faiss PQ": faiss.IndexPQ(split.base.shape[1], n_bytes, 8),
        }
        indexes["Faiss PQ"].train(split.train[:_TRAIN])
        runs: dict[str, tuple[Callable[[], Any], int]] = {}
        for name, index in indexes.items():
            index.add(split.base)
            runs[name] = (lambda i=index: i.search(split.queries, _K)), len(split.queries)
            alone = (lambda i=index: [i.search(split.queries[q : q + 1], _K) for q in range(_FEW)]), _FEW
            runs[f"{name}, one at a time"] = alone
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
