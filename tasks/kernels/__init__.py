"""Inner loops: packing, winner-take-all, sparse accumulation, fixed-order scores.

Each module has the public function and beside it a plain NumPy ``*_reference`` with equal results, bit for
bit.  The loops themselves are in `compiled`, which is imported (and numba with it) at the first call; where
numba cannot be imported the references run, after one warning.
"""
