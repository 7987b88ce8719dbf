"""A trained model: the method, the finished state, and what it encodes.

On disk a model is a Zarr group of its arrays and a JSON header; nothing in it is ever executed, and the
method is looked up by name.  Its digest covers method, state and data description, but neither times nor
paths nor the environment: the same training gives the same digest anywhere.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..storage import models
from ..storage.errors import CorruptObject
from ..storage.places import place
from ..storage.run import RunDirectory, is_stream
from ..tasks.refine import thresholding_of
from . import model_checks as checked
from .config import build_method, method_table
from .encode import encode_vectors, unpack
from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..storage.places import Place
    from ..tasks.decoder import Decoder
    from ..tasks.protocols import DataInfo, Encoder, Method, RoundState, StateReference
    from .arrays import Vectors

FORMAT = "bitfleet-model"
FORMAT_VERSION = 1
MATRIX = "decoder_matrix"  # beside the state's arrays in a model with a decoder

ModelLike: TypeAlias = "Model | str | os.PathLike[str]"


@dataclass(frozen=True, eq=False)
class Model:
    """What training leaves behind.

    Attributes
    ----------
    method : Method
        The frozen hyper-parameters.
    state : RoundState
        The finished state.
    info : DataInfo
        Size and type of the data that it was trained on.
    path : Path, ObjectPath or None
        Where it is kept, if it is.
    decoder : Decoder or None
        Turns codes back into vectors; `bitfleet.fit_decoder` returns a model with one.
    """

    method: Method
    state: RoundState
    info: DataInfo
    path: Place | None = None
    decoder: Decoder | None = None

    @cached_property
    def header(self) -> dict[str, Any]:
        """Everything but the arrays, as JSON values."""
        header = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "method": method_table(self.method),
            "info": asdict(self.info),
            "round": self.state.round,
            "scalars": dict(self.state.scalars),
        }
        return header if self.decoder is None else {**header, "decoder": {"ridge": self.decoder.ridge}}

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """All that is learned: the state's arrays, and the decoder's if there is one."""
        if self.decoder is None:
            return self.state.arrays
        return {**self.state.arrays, MATRIX: self.decoder.matrix}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content, in hex; equal models have equal digests wherever they were trained."""
        return models.model_digest(self.header, self.arrays)

    @cached_property
    def encoder_digest(self) -> str:
        """The digest of the model without its decoder, which codes are marked with: it decides their bits."""
        return self.digest if self.decoder is None else replace(self, decoder=None).digest

    @cached_property
    def _encoder(self) -> Encoder:
        return self.method.encoder(self.state)

    def encoder(self) -> Encoder:
        """Return the encoder (built once)."""
        return self._encoder

    @property
    def n_bits(self) -> int:
        """Bits per code."""
        return self.encoder().n_bits

    def encode(self, vectors: Vectors) -> Any:
        """Return packed codes.

        Parameters
        ----------
        vectors : array, Dataset or path, shape (n, d)
            See `bitfleet.encode`.

        Returns
        -------
        ndarray of uint8, shape (n, ceil(n_bits / 8))
            LSB first, padding bits zero; a dask array if ``vectors`` is one.
        """
        return encode_vectors(self, vectors)

    def transform(self, vectors: Vectors) -> Any:
        """Return the codes as bits: uint8 zeros and ones, shape (n, n_bits); dask in, dask out."""
        return unpack(self.encode(vectors), self.n_bits)

    def decode(self, codes: np.ndarray, *, n_sbiht: int = 0) -> np.ndarray:
        """Return vectors that stand for codes.

        Parameters
        ----------
        codes : ndarray of uint8, shape (m, ceil(n_bits / 8))
            Packed, as from `encode`.
        n_sbiht : int, default 0
            Of sparse codes: steps of Algorithm 4 (POSH paper) that bring each vector's own code nearer to
            the given one.

        Returns
        -------
        ndarray of float64, shape (m, d)

        Raises
        ------
        ConfigError
            If the model has no decoder yet, or no vectors can be had from its codes by these steps.
        """
        decoder = self.needed_decoder()
        if not n_sbiht:
            return decoder.decode(codes)
        try:
            thresholding = thresholding_of(self.method, self.state, decoder)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return decoder.to_vectors(thresholding.reconstruct(codes, n_sbiht))

    def needed_decoder(self) -> Decoder:
        """Return the decoder; `ConfigError` if there is none."""
        encoder: Any = self.encoder()
        if self.decoder is None and hasattr(encoder, "own_decoder"):
            return encoder.own_decoder()  # type: ignore[no-any-return]
        if self.decoder is None:
            raise ConfigError(
                "this model has no decoder; fit one: model = bitfleet.fit_decoder(model, data), "
                "or: bitfleet fit-decoder RUN DATA MODEL"
            )
        return self.decoder

    def save(self, path: str | os.PathLike[str]) -> Place:
        """Write the model to ``path``, which must not exist yet, and return it.

        Raises
        ------
        DestinationExists
            If something is there already.
        """
        models.save_model(path, self.header, self.arrays)
        return place(path)

    def reference(self) -> StateReference:
        """Return where workers can read the state from; the state itself if the model is only in memory."""
        if self.path is None:
            return HeldState(self.state, self.digest)
        return ModelReference(str(self.path), self.digest)

    def __repr__(self) -> str:
        return f"Model({self.method!r}, digest={self.digest[:12]!r})"


@dataclass(frozen=True)
class ModelReference:
    """A saved model as a `StateReference`: path and digest."""

    path: str
    key: str

    def load(self) -> RoundState:
        """Read the state back, verified.

        Raises
        ------
        CorruptObject
            If the model at this path is another one by now.
        """
        return self.load_model().state

    def load_model(self) -> Model:
        """Read the model back, verified."""
        model = load(self.path)
        if model.digest != self.key:
            raise CorruptObject(
                f"{self.path} holds the model {model.digest[:12]}, expected {self.key[:12]}; it was replaced"
            )
        return model


@dataclass(frozen=True, eq=False)
class HeldState:
    """A state in memory as a `StateReference`; for work in this process."""

    state: RoundState
    key: str

    def load(self) -> RoundState:
        """Return the state."""
        return self.state


def load(path: str | os.PathLike[str]) -> Model:
    """Read a model, the model of a finished run, or that of a stream by now.

    Parameters
    ----------
    path : path
        A saved model, a run directory, or a stream's.

    Raises
    ------
    ConfigError
        If the run has no model yet, or the model needs a method or version that is not installed.
    CorruptObject, UnsafeObject
        If the files are not what was written, or would need more than the safe types.

    Examples
    --------
    >>> import numpy as np, tempfile, bitfleet as bf
    >>> X = np.random.default_rng(0).normal(size=(50, 8))
    >>> lsh = bf.LSH(n_bits=8, random_state=0).fit(X)
    >>> path = lsh.save(tempfile.mkdtemp() + "/lsh.zarr")
    >>> bool((bf.load(path).encode(X) == lsh.encode(X)).all())
    True
    """
    path = place(path)
    if RunDirectory.exists(path):
        if is_stream(path):
            from .stream import open_stream  # which needs this module

            return open_stream(path).model
        if not (path / "model.zarr").exists():
            raise ConfigError(f"the run {path} has no model yet; go on with: bitfleet resume {path}")
        model = load(path / "model.zarr")
        checked.check_belongs(model, path)
        return model
    if not path.exists():
        raise FileNotFoundError(f"expected a model or a run, but {path} does not exist")
    header, arrays = models.load_model(path)
    return _from_parts(header, arrays, path)


def as_model(model: ModelLike) -> Model:
    """Return the model that ``model`` is or names; estimators are taken by their ``model_``."""
    if isinstance(model, Model):
        return model
    if isinstance(model, str | os.PathLike):
        return load(model)
    if isinstance(getattr(model, "model_", None), Model):
        return model.model_
    raise TypeError(f"expected a model, its path, or a fitted estimator, got {type(model).__name__}")


def _from_parts(header: Mapping[str, Any], arrays: Mapping[str, Any], path: Place) -> Model:
    if header.get("format") != FORMAT:
        raise CorruptObject(f"{path} is no bitfleet model: its header says format={header.get('format')!r}")
    if header.get("format_version") != FORMAT_VERSION:
        raise ConfigError(
            f"{path} has model format {header.get('format_version')!r}, this bitfleet reads "
            f"{FORMAT_VERSION}; install the version that wrote it or a newer one"
        )
    try:
        params = dict(header["method"])
        method = build_method(params.pop("name"), params)
        own = {name: array for name, array in arrays.items() if name != MATRIX}
        model = Model(method, checked.state(header, own), checked.info(header["info"]), path)
        checked.check_encoder(model)
        if "decoder" in header or MATRIX in arrays:
            model = replace(model, decoder=checked.decoder(model, header["decoder"], arrays[MATRIX]))
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptObject(f"{path} has a broken header or broken arrays: {error}") from error
    return model
