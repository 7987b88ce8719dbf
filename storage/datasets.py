"""Datasets: vectors, and labels if there are any, as a Zarr format 3 group that xarray can open.

::

    digits.zarr/
      vectors/     (sample, feature), the source's dtype, chunks of whole rows
      label/       (sample,) int64, -1 = none; optional
      zarr.json    attributes with the content's digest; written last, it makes the dataset valid

A folder without the group's ``zarr.json`` is an unfinished dataset and is never read.
"""

from __future__ import annotations

from .dataset import Dataset, open_dataset
from .dataset_writer import DatasetWriter, default_chunk_rows
from .readers import ArrayReader, DatasetReader, StoredBlock

__all__ = [
    "ArrayReader",
    "Dataset",
    "DatasetReader",
    "DatasetWriter",
    "StoredBlock",
    "default_chunk_rows",
    "open_dataset",
]
