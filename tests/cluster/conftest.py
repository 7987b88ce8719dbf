"""Clusters shared by all cluster tests, and the toy programs made importable.

Test modules cannot be imported by name; worker processes started from here inherit `sys.path`, so the folder
of this file is put there and `cluster_toys` is an ordinary module for driver and workers alike.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
