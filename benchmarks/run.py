"""Run all benchmarks, one after the other; each prints one JSON line per result on standard output.

python benchmarks/run.py [NAME …]              # for example: paper_tables itq_vs_faiss
python benchmarks/run.py --keep [NAME …]       # of kernels, growth, peers: docs/performance.md made anew
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import performance_report

FOLDER = Path(__file__).resolve().parent
HELPERS = {
    "make_deformed_digits", "scale_data", "embedding_cells", "embedding_report", "embedding_speed",
    "run", "mnist", "make_digits", "make_gist", "nibh_data", "search_data", "paper_cells", "paper_report",
    "performance_report",
}  # fmt: skip
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


def main() -> int:
    names = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in HELPERS)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=names, help=f"of {', '.join(names)}; all by default")
    parser.add_argument(
        "--keep", action="store_true", help="keep the lines in benchmarks/measured, for docs/performance.md"
    )
    options = parser.parse_args()
    chosen = options.names
    if options.keep:
        chosen = list(performance_report.NAMES) if chosen is names else chosen
        if other := sorted(set(chosen) - set(performance_report.NAMES)):
            parser.error(f"--keep is for {', '.join(performance_report.NAMES)}, not for {', '.join(other)}")
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"unknown benchmarks {', '.join(unknown)}; there are {', '.join(names)}")
    failed = []
    for name in chosen:
        print(f"== {name}", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, FOLDER / f"{name}.py"],
            env=os.environ | ONE_THREAD,
            stdout=subprocess.PIPE if options.keep else None,
            check=False,
        )
        if done.returncode:
            failed.append(name)
        elif options.keep:
            (performance_report.MEASURED / f"{name}.jsonl").write_bytes(done.stdout)
            performance_report.write()
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
