"""What is demanded of a stored model: of its header and arrays, and of one that is said to be a run's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage.errors import CorruptObject, StorageError
from ..storage.rounds import load_round
from ..storage.run import newest_manifest
from ..storage.s3_objects import objects_at
from ..tasks.decoder import Decoder, space_of
from ..tasks.protocols import DataInfo, RoundState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..storage.places import Place
    from .model import Model


def state(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> RoundState:
    """Return the state that header and arrays describe; `ValueError` says what is wrong with them."""
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


def info(stated: Mapping[str, Any]) -> DataInfo:
    """Return what a header says of the training data; `ValueError` as `state`."""
    info = DataInfo(**stated)
    for name in ("n_rows", "n_features"):
        value = getattr(info, name)
        if type(value) is not int or value < 1:
            raise ValueError(f"expected {name} >= 1, got {value!r}")
    if info.dtype not in ("float32", "float64"):
        raise ValueError(f"expected the dtype float32 or float64, got {info.dtype!r}")
    return info


def decoder(model: Model, stated: Mapping[str, Any], matrix: np.ndarray) -> Decoder:
    """Return the decoder; ValueError if matrix and header do not make one of this model's codes."""
    ridge, encoder = stated["ridge"], model.encoder()
    if type(ridge) is not float or not 0 <= ridge < float("inf"):
        raise ValueError(f"expected a ridge >= 0, got {ridge!r}")
    if matrix.dtype != np.float64 or len(matrix) != encoder.n_bits:
        raise ValueError(
            f"expected a decoder of {encoder.n_bits} bits in float64, got {matrix.dtype} of {matrix.shape}"
        )
    return Decoder(matrix, space_of(model.state, encoder.n_features), encoder.n_active is None, ridge)


def check_encoder(model: Model) -> None:
    """Raise `ValueError` unless the arrays make the encoder that method and data description promise."""
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


def check_belongs(model: Model, run: Place) -> None:
    """Raise `CorruptObject` unless the model is what the run's newest round holds, as far as that is read.

    A run may have lost its newest manifest, and its checkpoint be damaged while the model is whole.
    """
    newest, state = newest_manifest(run), model.state
    if newest is None or newest.round < state.round:
        return
    same = newest.round == state.round and newest.scalars == dict(state.scalars)
    if same:
        try:
            arrays = load_round(objects_at(run), newest).arrays
        except StorageError:
            return  # the model is whole, whatever became of the checkpoint
        same = arrays.keys() == state.arrays.keys() and all(
            array.dtype == state.arrays[name].dtype and np.array_equal(array, state.arrays[name])
            for name, array in arrays.items()
        )
    if not same:
        raise CorruptObject(
            f"{run / 'model.zarr'} is a whole model, but not that of this run; "
            f"remove it and save the run's own with: bitfleet resume {run}"
        )
