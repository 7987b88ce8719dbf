"""A trained model: the method, the finished state, and what it encodes.

On disk a model is a Zarr group of its arrays and a JSON header; nothing in it is ever executed, and the
method is looked up by name.  Its digest covers method, state and data description, but neither times nor
paths nor the environment: the same training gives the same digest anywhere.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..storage import models
from ..storage.errors import CorruptObject
from ..tasks.protocols import DataInfo, RoundState
from .config import build_method, method_table
from .encode import encode_vectors, unpack
from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..tasks.protocols import Encoder, Method, StateReference
    from .arrays import Vectors

FORMAT = "bitfleet-model"
FORMAT_VERSION = 1

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
    path : Path or None
        Where it is kept, if it is.
    """

    method: Method
    state: RoundState
    info: DataInfo
    path: Path | None = None

    @cached_property
    def header(self) -> dict[str, Any]:
        """Everything but the arrays, as JSON values."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "method": method_table(self.method),
            "info": asdict(self.info),
            "round": self.state.round,
            "scalars": dict(self.state.scalars),
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content, in hex; equal models have equal digests wherever they were trained."""
        return models.model_digest(self.header, self.state.arrays)

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

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model to ``path``, which must not exist yet, and return it.

        Raises
        ------
        DestinationExists
            If something is there already.
        """
        models.save_model(Path(path), self.header, self.state.arrays)
        return Path(path)

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
    """Read a model, or the model of a finished run.

    Parameters
    ----------
    path : path
        A saved model, or a run directory.

    Raises
    ------
    ConfigError
        If the run has no model yet, or the model needs a method or version that is not installed.
    CorruptObject, UnsafeObject
        If the files are not what was written, or would need more than the safe types.
    """
    path = Path(path)
    if (path / "config.json").exists():
        if not (path / "model.zarr").exists():
            raise ConfigError(f"the run {path} has no model yet; go on with: bitfleet resume {path}")
        path = path / "model.zarr"
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


def _from_parts(header: Mapping[str, Any], arrays: Mapping[str, Any], path: Path) -> Model:
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
        model = Model(method, _state(header, arrays), _info(header["info"]), path)
        _check_encoder(model)
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptObject(f"{path} has a broken header or broken arrays: {error}") from error
    return model


def _state(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> RoundState:
    number, scalars = header["round"], dict(header["scalars"])
    if type(number) is not int or number < 0:
        raise ValueError(f"expected a round >= 0, got {number!r}")
    strange = sorted(name for name, value in scalars.items() if isinstance(value, list | dict))
    if strange:
        raise ValueError(f"expected plain values as scalars, {', '.join(strange)} are none")
    stated = header["info"]
    for name in sorted(scalars.keys() & stated.keys()):
        if (type(scalars[name]), scalars[name]) != (type(stated[name]), stated[name]):
            raise ValueError(f"its state has {name} = {scalars[name]!r}, its data {stated[name]!r}")
    return RoundState(number, dict(arrays), scalars)


def _info(stated: Mapping[str, Any]) -> DataInfo:
    info = DataInfo(**stated)
    for name in ("n_rows", "n_features"):
        value = getattr(info, name)
        if type(value) is not int or value < 1:
            raise ValueError(f"expected {name} >= 1, got {value!r}")
    if info.dtype not in ("float32", "float64"):
        raise ValueError(f"expected the dtype float32 or float64, got {info.dtype!r}")
    return info


def _check_encoder(model: Model) -> None:
    """Raise unless the arrays make the encoder that method and data description promise."""
    try:
        encoder = model.encoder()
    except MemoryError:
        raise
    except Exception as error:  # whatever a method makes of arrays that are not its own
        raise ValueError(f"its arrays make no encoder ({type(error).__name__}: {error})") from error
    wanted = {
        "n_features": model.info.n_features,
        "n_bits": getattr(model.method, "n_bits", None),  # None: the method's choice
        "n_active": getattr(model.method, "n_active", None),
    }
    for name, expected in wanted.items():
        found = getattr(encoder, name)
        if found != expected and not (name == "n_bits" and expected is None):
            raise ValueError(f"it promises {name} = {expected}, its arrays make codes with {name} = {found}")
