"""Exact and clustered search of a million codes beside ``faiss.IndexBinaryFlat``, on one thread.

    python benchmarks/search.py [--parts sparse dense clusters pursuit] [--data mnist.npz] [--keep FOLDER]

Codes of shifted MNIST digits (`search_data`); times are CPU time of this thread, all sides in turn, the
least of several runs.  Every result is compared with the other side's.  Prints one JSON line per result.

The part "pursuit" searches PursuitHash's codes beside POSH's, by bit columns and by inverted lists (made for
this comparison: lists are read code by code, so they cost what the lists of a query's ones hold).
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import bitfleet as bf  # noqa: E402
import faiss  # noqa: E402
import numpy as np  # noqa: E402
from bitfleet.tasks.index import DenseCodes, SparseCodes  # noqa: E402
from inverted import InvertedLists  # noqa: E402
from mnist import add_data_option  # noqa: E402
from search_data import ShiftedDigits, made, rotated_pca_encoder, sparse_encoder  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS = ("sparse", "dense", "clusters", "pursuit")
SPARSE_TARGETS = {16: 18, 32: 12, 64: 8}
SCAN_TARGETS = {64: 8, 128: 5, 256: 3}
PIVOT_TARGETS = {64: 14, 128: 9, 256: 4.5}
_RUNS = 5
_FAISS_QUERIES = 64


def timed(runs: dict[str, tuple[Callable[[], Any], int]]) -> tuple[dict[str, float], dict[str, Any]]:
    """Run several things in turn; return the least microseconds a query of each, and what it returned."""
    least = dict.fromkeys(runs, np.inf)
    found: dict[str, Any] = {}
    for round_ in range(_RUNS + 1):
        for name, (run, n_queries) in runs.items():
            begin = time.thread_time()
            found[name] = run()
            if round_:  # the first warms up
                least[name] = min(least[name], (time.thread_time() - begin) / n_queries * 1e6)
    return least, found


def flat(packed: np.ndarray) -> Any:
    index = faiss.IndexBinaryFlat(8 * packed.shape[1])
    index.add(packed)
    return index


def report(name: str, **values: Any) -> None:
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in values.items()}
    print(json.dumps({"benchmark": "search", "part": name, "rows": 1_000_000, **rounded}), flush=True)


def sparse(n_active: int, packed: np.ndarray, queries: np.ndarray) -> None:
    """Exhaustive search by overlap, 64 queries a tile, 1,000 results."""
    codes, peer = SparseCodes(packed, 1024, n_active), flat(packed)
    times, found = timed(
        {
            "bitfleet": (lambda: codes.search(queries[:256], 1000), 256),
            "faiss": (lambda: peer.search(queries[:_FAISS_QUERIES], 1000), _FAISS_QUERIES),
        }
    )
    ratio = times["faiss"] / times["bitfleet"]
    report(
        "sparse",
        n_bits=1024,
        n_active=n_active,
        k=1000,
        microseconds=times["bitfleet"],
        faiss_microseconds=times["faiss"],
        ratio=ratio,
        target=SPARSE_TARGETS[n_active],
        reached=ratio >= SPARSE_TARGETS[n_active],
        same_distances=bool((found["bitfleet"][0][:_FAISS_QUERIES] == found["faiss"][0]).all()),
        same_ids=bool((found["bitfleet"][1][:_FAISS_QUERIES] == found["faiss"][1]).all()),
    )


def dense(n_bits: int, packed: np.ndarray, queries: np.ndarray) -> None:
    """Exhaustive search by Hamming distance, with and without pivots."""
    scan, pivots, peer = DenseCodes(packed, "scan"), DenseCodes(packed, "pivots"), flat(packed)
    for k in (10, 100):
        times, found = timed(
            {
                "scan": (lambda k=k: scan.search(queries[:256], k), 256),
                "pivots": (lambda k=k: pivots.search(queries[:256], k), 256),
                "faiss": (lambda k=k: peer.search(queries[:_FAISS_QUERIES], k), _FAISS_QUERIES),
            }
        )
        for name, targets in (("scan", SCAN_TARGETS), ("pivots", PIVOT_TARGETS)):
            ratio = times["faiss"] / times[name]
            target = targets[n_bits] if k == 100 else None
            report(
                f"dense {name}",
                n_bits=n_bits,
                k=k,
                microseconds=times[name],
                faiss_microseconds=times["faiss"],
                ratio=ratio,
                target=target,
                reached=None if target is None else ratio >= target,
                same_distances=bool((found[name][0][:_FAISS_QUERIES] == found["faiss"][0]).all()),
                same_ids=bool((found[name][1][:_FAISS_QUERIES] == found["faiss"][1]).all()),
            )


def clusters(n_active: int, packed: np.ndarray, queries: np.ndarray) -> None:
    """Search by the coarse quantizer: queries a second, and what it finds of the exhaustive result."""
    exact = bf.CodeIndex(packed, n_active, n_bits=1024).search(queries, 1000)[0]
    index = bf.CodeIndex(packed, n_active, n_bits=1024, n_clusters="auto")
    for n_probe in (10, 20, 50):
        times, found = timed(
            {"bitfleet": (lambda p=n_probe: index.search(queries, 1000, n_probe=p), len(queries))}
        )
        per_second = 1e6 / times["bitfleet"]
        # a result counts if it is no farther than the exhaustive search's last: ties may differ
        recall = float((found["bitfleet"][0] <= exact[:, -1:]).mean())
        is_target = n_active == 32 and n_probe == 20
        report(
            "clusters",
            n_bits=1024,
            n_active=n_active,
            k=1000,
            n_clusters=index.n_clusters,
            n_probe=n_probe,
            queries_per_second=per_second,
            recall=recall,
            target=[12_000, 0.96] if is_target else None,
            reached=per_second >= 12_000 and recall >= 0.96 if is_target else None,
        )


def pursuit(n_active: int, all_codes: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Search by overlap of two methods' codes, the 100 nearest."""
    runs: dict[str, tuple[Callable[[], Any], int]] = {}
    postings = {}
    for name, (packed, queries) in all_codes.items():
        columns, lists = SparseCodes(packed, 1024, n_active), InvertedLists(packed, 1024, n_active)
        postings[name] = float(lists.postings(queries).mean())
        runs[f"{name} columns"] = (lambda c=columns, q=queries: c.search(q[:256], 100), 256)
        runs[f"{name} lists"] = (lambda i=lists, q=queries: i.search(q[:64], 100), 64)
    times, found = timed(runs)
    for engine in ("columns", "lists"):
        report(
            f"pursuit {engine}",
            n_bits=1024,
            n_active=n_active,
            k=100,
            microseconds=times[f"pursuit {engine}"],
            posh_microseconds=times[f"posh {engine}"],
            ratio=times[f"posh {engine}"] / times[f"pursuit {engine}"],
            postings=postings["pursuit"],
            posh_postings=postings["posh"],
            postings_ratio=postings["posh"] / postings["pursuit"],
            same_ids=all(
                bool((found[f"{name} columns"][i][:64] == found[f"{name} lists"][i]).all())
                for name in all_codes
                for i in (0, 1)
            ),
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--keep", type=Path, help="keep the codes in this folder, or find them there")
    parser.add_argument("--active", nargs="+", type=int, default=[16, 32, 64], help='of the part "pursuit"')
    add_data_option(parser)
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    digits = ShiftedDigits(options.data)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        if "dense" in options.parts:
            for n_bits in SCAN_TARGETS:
                path = folder / f"dense{n_bits}.npz"
                dense(n_bits, *made(path, lambda b=n_bits: rotated_pca_encoder(digits, b), digits))
        for part, measure in (("sparse", sparse), ("clusters", clusters)):
            for n_active in SPARSE_TARGETS if part in options.parts else ():
                measure(n_active, *sparse_codes(digits, folder, "posh", n_active=n_active))
        for n_active in options.active if "pursuit" in options.parts else ():
            parameters = {"n_active": n_active, "n_components": 64}
            names = {"posh": "posh", "pursuit": "pursuit_hash"}
            pursuit(n_active, {k: sparse_codes(digits, folder, v, **parameters) for k, v in names.items()})


def sparse_codes(
    digits: ShiftedDigits, folder: Path, method: str, **parameters: int
) -> tuple[np.ndarray, np.ndarray]:
    path = folder / ("-".join([method, *map(str, parameters.values())]) + ".npz")
    with tempfile.TemporaryDirectory() as work:
        return made(path, lambda: sparse_encoder(method, digits, Path(work), **parameters), digits)


if __name__ == "__main__":
    main()
