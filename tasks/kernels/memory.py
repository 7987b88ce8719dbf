"""Arrays that begin where a cache line begins, so that no load of eight words touches two lines."""

from __future__ import annotations

import numpy as np

LINE_WORDS = 8


def aligned_words(n: int) -> np.ndarray:
    """Return ``n`` zeros of uint64 that begin at a multiple of 64 bytes."""
    words = np.zeros(n + LINE_WORDS, np.uint64)
    skipped = -words.ctypes.data // 8 % LINE_WORDS
    return words[skipped : skipped + n]
