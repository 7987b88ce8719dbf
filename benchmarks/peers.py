"""The same task beside Faiss, scikit-learn and Dask: one JSON line per task and peer.

    python benchmarks/peers.py [--rows 100000] [--rounds 3] [--only NAME …]

Generated float32 rows × 128 whose variance falls off, in memory; one thread each, in turn, processor
seconds, the best of the rounds.  ``ratio`` is the peer's time over ours: above 1,
ours is faster.  ``agreement`` is the share of neighbours or distances that are the same.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import bitfleet as bf  # noqa: E402
import dask.array as da  # noqa: E402
import faiss  # noqa: E402
import numpy as np  # noqa: E402
from bitfleet.tasks.protocols import Block, RoundState  # noqa: E402
from bitfleet.tasks.search import NearestVectors  # noqa: E402
from sklearn.cluster import MiniBatchKMeans  # noqa: E402
from sklearn.decomposition import IncrementalPCA  # noqa: E402
from sklearn.neighbors import NearestNeighbors  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

D = 128
VERSIONS = {"faiss": "faiss-cpu", "scikit-learn": "scikit-learn", "dask": "dask"}


@dataclass
class Task:
    """The same thing done by us and by somebody else, and how far the results are the same."""

    peer: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    says: str
    agreement: Callable[[Any, Any], float] | None = None


def rows_of(n: int, seed: int) -> np.ndarray:
    """Return rows of a fixed random rotation of independent coordinates with falling variance."""
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((D, D)))[0]
    scaled = np.random.default_rng(seed).standard_normal((n, D)) * np.arange(1, D + 1) ** -0.5
    return np.asarray(scaled @ basis, np.float32)


def itq(X: np.ndarray) -> Task:
    """PCA to 32 dimensions and 50 rotations; all rows on both sides."""

    def theirs() -> np.ndarray:
        pca = faiss.PCAMatrix(D, 32)
        pca.max_points_per_d = len(X)
        pca.train(X)
        matrix = faiss.ITQMatrix(32)
        matrix.max_train_per_dim = len(X)
        projected = pca.apply(X)
        matrix.train(projected)
        return np.asarray(matrix.apply(projected))

    return Task(
        "faiss",
        lambda: bf.ITQ(32, random_state=0).fit(X),
        theirs,
        says="ITQMatrix after PCAMatrix, 32 bits, 50 iterations",
    )


def lsh(X: np.ndarray) -> Task:
    """256 random signs: train and encode."""

    def theirs() -> Any:
        index = faiss.IndexLSH(D, 256, True, False)
        index.train(X)
        index.add(X)
        return index

    return Task("faiss", lambda: bf.LSH(256, random_state=0).fit_transform(X), theirs,
                says="IndexLSH train and add, 256 bits; ours are certified bit by bit")  # fmt: skip


def binary(X: np.ndarray) -> Task:
    """The 100 nearest of 256-bit codes, exhaustively."""
    codes = np.packbits(np.concatenate([X > -0.1, X > 0.1], axis=1), axis=1, bitorder="little")
    queries = codes[:200]
    index = faiss.IndexBinaryFlat(256)
    index.add(codes)
    own = bf.CodeIndex(codes, n_bits=256)
    return Task(
        "faiss",
        lambda: own.search(queries, 100)[0],
        lambda: index.search(queries, 100)[0],
        "IndexBinaryFlat.search, 200 queries, k = 100",
        lambda ours, theirs: float(np.mean(ours == theirs)),
    )


def _nearest(X: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    sums = NearestVectors(k).accumulator(RoundState(0, {"query_vectors": queries}))
    state = sums.init()
    for start in range(0, len(X), 2**16):
        part = X[start : start + 2**16]
        state = sums.merge(state, sums.update(sums.init(), Block(np.arange(start, start + len(part)), part)))
    return np.asarray(sums.finalize(state)["id"])


def _shared(ours: np.ndarray, theirs: np.ndarray) -> float:
    found = [len(np.intersect1d(a, b)) for a, b in zip(ours, theirs, strict=True)]
    return float(np.mean(found)) / ours.shape[1]


def flat(X: np.ndarray) -> Task:
    """The 100 nearest rows of 1,000 queries; Faiss takes matrix products from so many on."""
    queries = rows_of(1000, 9)

    def theirs() -> np.ndarray:
        index = faiss.IndexFlatL2(D)
        index.add(X)
        return np.asarray(index.search(queries, 100)[1])

    says = "IndexFlatL2, 1,000 queries, k = 100"
    return Task("faiss", lambda: _nearest(X, queries, 100), theirs, says, _shared)


def brute(X: np.ndarray) -> Task:
    """The same beside scikit-learn."""
    queries = rows_of(1000, 9)
    other = NearestNeighbors(n_neighbors=100, algorithm="brute").fit(X)
    return Task(
        "scikit-learn",
        lambda: _nearest(X, queries, 100),
        lambda: other.kneighbors(queries, return_distance=False),
        "NearestNeighbors(algorithm='brute'), 1,000 queries, k = 100",
        _shared,
    )


def pca(X: np.ndarray) -> Task:
    """32 components: one pass, and for ours one rotation besides."""
    return Task(
        "scikit-learn", lambda: bf.ITQ(32, n_iter=1, random_state=0).fit(X),
        lambda: IncrementalPCA(32, batch_size=8192).fit(X),
        says="IncrementalPCA(32); ours learns a rotation besides",
    )  # fmt: skip


def svd(X: np.ndarray) -> Task:
    """32 components by Dask's randomised SVD, on this thread."""
    chunked = da.from_array(X, chunks=(8192, D))

    def theirs() -> Any:
        centred = chunked - chunked.mean(axis=0)
        return da.compute(*da.linalg.svd_compressed(centred, 32, seed=0), scheduler="synchronous")

    return Task("dask", lambda: bf.ITQ(32, n_iter=1, random_state=0).fit(X), theirs,
                says="dask.array svd_compressed(32); ours learns a rotation besides")  # fmt: skip


def kmeans(X: np.ndarray) -> Task:
    """256 directions or centres, one pass over all rows."""
    other = MiniBatchKMeans(
        256, batch_size=4096, max_iter=1, n_init=1, max_no_improvement=None, random_state=0
    )
    return Task(
        "scikit-learn",
        lambda: bf.POSH(256, n_active=8, n_epochs=1, random_state=0).fit(X),
        lambda: other.fit(X),
        "MiniBatchKMeans(256), one pass; ours is POSH, 8 of 256, one pass",
    )


TASKS: dict[str, Callable[[np.ndarray], Task]] = {
    "ITQ": itq, "LSH": lsh, "binary search": binary, "exact neighbours": flat,
    "exact neighbours (2)": brute, "PCA": pca, "PCA (2)": svd, "centres": kmeans,
}  # fmt: skip


def measure(name: str, X: np.ndarray, rounds: int) -> dict[str, Any]:
    """Time both in turn."""
    task = TASKS[name](X)
    task.ours()  # compiled and warm
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    results: dict[str, Any] = {}
    for _ in range(rounds):
        for who, call in (("ours", task.ours), ("theirs", task.theirs)):
            begun = time.process_time()
            results[who] = call()
            times[who].append(time.process_time() - begun)
    line = {
        "benchmark": "peers",
        "task": name.removesuffix(" (2)"),
        "beside": f"{task.peer} {importlib.metadata.version(VERSIONS[task.peer])}",
        "case": task.says,
        "rows": len(X),
        "features": D,
        "ratio": round(min(times["theirs"]) / min(times["ours"]), 3),
        "seconds": round(min(times["ours"]), 3),
        "peer_seconds": round(min(times["theirs"]), 3),
        "load": round(os.getloadavg()[0], 1),
        "threads": 1,
        "numpy": np.__version__,
    }
    if task.agreement is not None:
        line["agreement"] = round(task.agreement(results["ours"], results["theirs"]), 5)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=list(TASKS), choices=list(TASKS))
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    X = rows_of(options.rows, 1)
    for name in options.only:
        print(json.dumps(measure(name, X, options.rounds)), flush=True)


if __name__ == "__main__":
    main()
