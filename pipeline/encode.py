"""Encoding: vectors in, packed codes out, one task per whole chunk of the output.

A code is a function of its row alone, so tiles, chunks and workers never show in the codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage.claims import abandon
from ..storage.codes import Codes, CodesWriter, create_codes, finish_codes
from ..tasks.kernels.pack import unpack_bits
from ..tasks.leaves import base_rows
from ..tasks.protocols import LeafPlan
from .arrays import as_dataset, check_shape, is_dask, is_dataset, memory_dtype, pieces, unwrap
from .errors import ConfigError

if TYPE_CHECKING:
    from ..storage.places import Place
    from ..tasks.protocols import Block, BlockReader, Encoder, Executor, Method, RoundState
    from .arrays import Vectors
    from .model import Model, ModelReference

_NOTHING = np.empty((0, 0), np.uint8)


def encode_vectors(model: Model, vectors: Vectors) -> Any:
    """Return packed codes in memory, shape (n, ceil(n_bits / 8)); dask in, dask out (lazy).

    Raises
    ------
    ValueError
        If the vectors have another number of features than the model.
    DataRefused
        If a row holds NaN or infinity.
    """
    if is_dataset(vectors):
        return _encode_dataset(model, vectors)
    vectors = unwrap(vectors)
    encoder = model.encoder()
    if is_dask(vectors):
        check_shape(vectors)
        _check_width(vectors.shape[1], encoder)
        return _encode_dask(model, vectors)
    tiles = []
    for piece in pieces(vectors):
        _check_width(piece.shape[1], encoder)
        tiles.append(_encode_tile(encoder, piece))
    return np.concatenate(tiles) if tiles else _no_codes(encoder)


def unpack(packed: Any, n_bits: int) -> Any:
    """Return packed codes as bits, uint8, shape (n, n_bits); a dask array if ``packed`` is one."""
    if is_dask(packed):
        return packed.map_blocks(
            unpack_bits, n_bits, dtype=np.uint8, chunks=(packed.chunks[0], (n_bits,)), meta=_NOTHING
        )
    return unpack_bits(packed, n_bits)


def encode_to(
    model: Model,
    reader: BlockReader,
    source_digest: str,
    dest: Place,
    executor: Executor,
    *,
    active: bool = False,
) -> Codes:
    """Write the codes of all rows to ``dest`` and return them.

    Parameters
    ----------
    model : Model
    reader : BlockReader
    source_digest : str
        Digest of the vectors, recorded with the codes.
    dest : Path or ObjectPath
        Must not exist yet.
    executor : Executor
    active : bool
        Also write the index lists of a sparse code's ones.

    Raises
    ------
    DestinationExists
        If something is at ``dest``.
    """
    encoder = model.encoder()
    _check_width(reader.n_features, encoder)
    if active and encoder.n_active is None:
        raise ConfigError(f"active=True needs sparse codes, {model.method.name} makes dense ones")
    plan = LeafPlan(reader.n_rows, base_rows(reader.n_features))
    writer = create_codes(
        dest,
        n_rows=reader.n_rows,
        n_bits=encoder.n_bits,
        n_active=encoder.n_active,
        chunk_rows=plan.block_rows,
        model_digest=model.encoder_digest,
        source_digest=source_digest,
        with_active=active,
    )
    try:
        function = EncodeBlock(model.method, writer, model.encoder_digest)
        receipts = executor.map(function, reader, plan.leaves(), model.reference())
        return finish_codes(dest, receipts)
    except BaseException:
        abandon(dest)  # ours since create_codes, and of no use unfinished
        raise


@dataclass(frozen=True)
class EncodeBlock:
    """The `BlockFunction` that encodes one block and writes its chunk."""

    method: Method
    writer: CodesWriter
    model: str

    def __call__(self, state: RoundState, block: Block) -> dict[str, Any]:
        """Write the chunk; return its first row and digest."""
        encoder: Any = _encoder_of(self.model, self.method, state)
        packed = encoder.encode(block.vectors)
        active = encoder.active(block.vectors) if self.writer.with_active else None
        return self.writer.write(int(block.rows[0]), packed, active)


@dataclass(frozen=True, eq=False)
class EncodeChunk:
    """What a dask array's blocks are mapped through; refers to a saved model, or holds the encoder."""

    reference: ModelReference | None
    encoder: Encoder | None

    def __call__(self, chunk: np.ndarray) -> np.ndarray:
        """Return the packed codes of one chunk."""
        encoder = self.encoder if self.reference is None else _saved_encoder(self.reference)
        assert encoder is not None
        tiles = [_encode_tile(encoder, piece) for piece in pieces(chunk)]
        return np.concatenate(tiles) if tiles else _no_codes(encoder)


_ENCODERS: dict[str, Encoder] = {}


def _encoder_of(digest: str, method: Method, state: RoundState) -> Encoder:
    """Return the encoder of a model; the last one is kept, since every block of a job needs it."""
    encoder = _ENCODERS.get(digest)
    if encoder is None:
        encoder = method.encoder(state)
        _ENCODERS.clear()
        _ENCODERS[digest] = encoder
    return encoder


def _encode_dask(model: Model, vectors: Any) -> Any:
    memory_dtype(vectors.dtype)
    if vectors.numblocks[1] > 1:
        vectors = vectors.rechunk({1: -1})
    encoder = model.encoder()
    if model.path is None:
        function = EncodeChunk(None, encoder)
    else:
        from .model import ModelReference

        function = EncodeChunk(ModelReference(str(model.path), model.digest), None)
    width = -(-encoder.n_bits // 8)
    return vectors.map_blocks(
        function,
        dtype=np.uint8,
        chunks=(vectors.chunks[0], (width,)),
        meta=_NOTHING,
    )


@lru_cache(maxsize=2)
def _saved_encoder(reference: ModelReference) -> Encoder:
    return reference.load_model().encoder()


def _encode_dataset(model: Model, data: Any) -> np.ndarray:
    reader = as_dataset(data).reader()
    encoder = model.encoder()
    _check_width(reader.n_features, encoder)
    plan = LeafPlan(reader.n_rows, base_rows(reader.n_features))
    tiles = [encoder.encode(reader.read(leaf).vectors) for leaf in plan.leaves()]
    return np.concatenate(tiles) if tiles else _no_codes(encoder)


def _encode_tile(encoder: Encoder, tile: np.ndarray) -> np.ndarray:
    return encoder.encode(np.ascontiguousarray(tile, dtype=memory_dtype(tile.dtype)))


def _no_codes(encoder: Encoder) -> np.ndarray:
    return np.empty((0, -(-encoder.n_bits // 8)), np.uint8)


def _check_width(n_features: int, encoder: Encoder) -> None:
    if n_features != encoder.n_features:
        raise ValueError(f"the model encodes rows of {encoder.n_features} features, got {n_features}")
