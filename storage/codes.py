"""Packed binary codes as a Zarr format 3 group: many tasks write it, each whole chunks of its own.

::

    codes.zarr/
      codes/       (sample, byte) uint8, LSB first, padding bits zero
      active/      (sample, n_active) int32, ascending places of the ones of sparse codes; optional
      zarr.json    attributes with the digests of content, model and source; written last

Two tasks that write into one chunk would lose each other's rows without an error, so a write that is not
exactly one chunk is refused.
"""

from __future__ import annotations

from .codes_reader import Codes, CodesReader, open_codes
from .codes_writer import CodesWriter, create_codes, finish_codes

__all__ = ["Codes", "CodesReader", "CodesWriter", "create_codes", "finish_codes", "open_codes"]
