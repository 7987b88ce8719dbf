"""Cells of the tables of near-isometric hashing: one method at one length, one seed; computed once and kept.

Each table has a function that computes a cell; `nibh_kept` keeps its numbers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from bitfleet.tasks.random import stream
from mnist import PLACES
from nibh_data import mnist_digits, on_sphere, random_rows, rotated, rotated_mean, translating_squares
from nibh_fits import FOLDER, Fitted, Split, fit, fit_once
from nibh_judge import Judge, bits_of, listed_delta, pair_errors
from scipy.spatial.distance import pdist

if TYPE_CHECKING:
    from nibh_kept import Cell

EMBEDDINGS = PLACES[0].with_name("wordnet_minilm384.npz")
N_ROWS = 10_000  # to learn from, to choose settings by, and to be looked at once
N_QUERIES, CUTS, RANKED = 1000, (10, 50, 100, 500), (100, 500)
N_FEW, N_HELD, FRESH = 100, 1000, 100  # points, others, and the first seed that no setting was chosen on
ROTATED = 240_000

#: row of a table: name, method, its parameters
METHODS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "lsh": ("LSH", "lsh", {}),
    "sklsh": ("SKLSH", "sklsh", {}),
    "klsh": ("KLSH", "klsh", {}),
    "sh": ("SH", "spectral_hashing", {}),
    "cbe_random": ("CBE, random", "cbe", {"learned": False}),
    "cbe": ("CBE", "cbe", {}),
    "shd": ("SHD", "shd", {}),
    "agh": ("AGH", "agh", {}),
    "bre": ("BRE", "bre", {}),
    "isohash": ("IsoHash", "isohash", {}),
    "itq": ("ITQ", "itq", {}),
    "paper": ("NIBH, paper", "nibh", {}),
    "isometric": ("NIBH, isometric", "nibh", {"preset": "isometric"}),
    "calibrated": ("NIBH, calibrated", "nibh", {"preset": "calibrated"}),
    "cg": ("NIBH-CG", "nibh_cg", {}),
}
#: of preset "calibrated", what did best on validation rows with seed 0; ITQ has twelve rotations with each
SETTINGS: dict[tuple[str, int], dict[str, Any]] = {
    ("mnist", 30): {"slope": 3.0},
    ("mnist", 64): {"p": 4, "w": 0.0},
    ("embeddings", 30): {"p": 4, "w": 0.0, "n_components": 384},
}
N_ROTATIONS = 12


# 10,000 rows ---------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def splits(data: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return training, validation and test rows, 10,000 each; only the training rows depend on the seed."""
    if data == "mnist":
        images, test = mnist_digits()
    else:
        with np.load(EMBEDDINGS) as file:
            everything = file["X"].astype(np.float32)
        order = stream(0, "nibh.split").permutation(len(everything))
        images, test = everything[order[N_ROWS:]], everything[order[:N_ROWS]]
    order = stream(0, "nibh.validation").permutation(len(images))
    validation, rest = images[order[:N_ROWS]], images[order[N_ROWS:]]
    chosen = np.sort(stream(seed, "nibh.train").choice(len(rest), N_ROWS, replace=False))
    training, mean = on_sphere(rest[chosen])
    return training, on_sphere(validation, mean)[0], on_sphere(test, mean)[0]


@functools.lru_cache(maxsize=2)
def judge_of(data: str, seed: int, part: int) -> Judge:
    """Return what judges the validation (1) or test rows (2) of a split."""
    return Judge.among(splits(data, seed)[part], N_QUERIES, max(CUTS))


def baselines(cell: Cell) -> dict[str, Any]:
    """One training, looked at on the test rows."""
    training, _, test = splits(cell.data, cell.seed)
    _, name, params = METHODS[cell.row]
    found = fit_once(Split(cell.data, cell.seed), name, training, cell.seed, n_bits=cell.bits, **params)
    return {"fit_seconds": round(found.seconds, 2)} | _seen(cell, found, test, spherical=cell.row == "shd")


def calibrated(cell: Cell) -> dict[str, Any]:
    """The best of some trainings by MAP@10 + MAP@500 of the validation rows, looked at on the test rows."""
    training, validation, test = splits(cell.data, cell.seed)
    _, name, params = METHODS[cell.row]
    choices = [(cell.seed, params)]
    if cell.row == "itq":
        choices = [(100 * cell.seed + k, params) for k in range(N_ROTATIONS)]
    elif cell.row == "calibrated":
        choices = [(cell.seed, {**params, **SETTINGS[cell.data, cell.bits]})]
    split = Split(cell.data, cell.seed)
    fitted = [fit_once(split, name, training, seed, n_bits=cell.bits, **params) for seed, params in choices]
    scores = []
    for each in fitted:
        values = judge_of(cell.data, cell.seed, 1).retrieval(each.bits(validation), (10, 500), ())
        scores.append(values["map@10"] + values["map@500"])
    best = int(np.argmax(scores))
    return {
        "chosen": {"seed": choices[best][0], **choices[best][1]},
        "scores": [round(score, 4) for score in scores],
        "fit_seconds": round(float(np.median([each.seconds for each in fitted])), 2),
        **_seen(cell, fitted[best], test),
    }


def _seen(cell: Cell, fitted: Fitted, test: np.ndarray, *, spherical: bool = False) -> dict[str, Any]:
    codes, judge = fitted.codes(test), judge_of(cell.data, cell.seed, 2)
    bits = bits_of(codes, cell.bits)
    values = judge.retrieval(bits, CUTS, RANKED) | pair_errors(codes, test, cell.bits)
    if spherical:
        own = judge.retrieval(bits, CUTS, RANKED, spherical=True)
        values |= {f"spherical {key}": value for key, value in own.items()}
    return values


# a hundred points ----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def few(data: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 100 training points and 1,000 others, float64; of the 64 squares both are all of them."""
    if data == "squares":
        rows = translating_squares().astype(np.float64)
        training = held = rows - rows.mean(axis=0)
    else:
        if data == "random":
            rows = random_rows(N_FEW + N_HELD, seed)
        else:
            images = mnist_digits()[0]
            rows = images[stream(seed, "nibh.few").choice(len(images), N_FEW + N_HELD, replace=False)]
        rows = rows.astype(np.float64)
        training, held = rows[:N_FEW] - rows[:N_FEW].mean(axis=0), rows[N_FEW:] - rows[:N_FEW].mean(axis=0)
    return (
        training / np.linalg.norm(training, axis=1)[:, None],
        held / np.linalg.norm(held, axis=1)[:, None],
    )


@functools.lru_cache(maxsize=1)
def _distances_of_few(data: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    training, held = few(data, seed)
    return pdist(training), pdist(held)


@functools.lru_cache(maxsize=1)
def _judge_of_few(data: str, seed: int) -> Judge:
    held = few(data, seed)[1].astype(np.float32)
    return Judge.among(held, len(held), 50 if len(held) > 100 else 10)


def lengths(cell: Cell) -> dict[str, Any]:
    """δ of 100 training points, δ, MAP and τ of the others, k being 50 (of the squares: 10)."""
    training, held = few(cell.data, cell.seed)
    _, name, params = METHODS[cell.row]
    found = fit(name, training, cell.seed, n_bits=cell.bits, **params)
    bits, judge = found.bits(held), _judge_of_few(cell.data, cell.seed)
    among, among_held = _distances_of_few(cell.data, cell.seed)
    k = judge.nearest.shape[1]
    values = judge.retrieval(bits, (k,), (k,))
    return {
        "delta": listed_delta(found.bits(training), among),
        "delta_test": listed_delta(bits, among_held),
        "map": values[f"map@{k}"],
        "tau": values[f"tau@{k}"],
    }


# up to 240,000 rows --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def rotated_rows(size: int, seed: int) -> np.ndarray:
    """Return so many of the 240,000 images and rotations, on the sphere, drawn by the seed."""
    images = mnist_digits()[0]
    chosen = np.arange(ROTATED)
    if size < ROTATED:
        chosen = np.sort(stream(seed, "nibh.rotated").choice(ROTATED, size, replace=False))
    mean, rows = rotated_mean(images), np.empty((size, images.shape[1]), np.float32)
    turn, image = np.divmod(chosen, len(images))
    for turned in range(4):
        places = np.flatnonzero(turn == turned)
        rows[places] = on_sphere(rotated(images[image[places]], (turned,)), mean)[0]
    return rows


@functools.lru_cache(maxsize=1)
def _judge_of_test() -> Judge:
    images, test = mnist_digits()
    return Judge.among(on_sphere(test, rotated_mean(images))[0], N_QUERIES, max(CUTS))


@functools.lru_cache(maxsize=1)
def _judge_of_all() -> Judge:
    """The test rows' queries to all 240,000; their neighbours are kept in a file."""
    rows, queries = rotated_rows(ROTATED, 0), _judge_of_test().queries
    file = FOLDER / "neighbors-of-1000-among-240000.npz"
    if not file.is_file():
        judge = Judge.against(rows, queries, max(CUTS))
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, nearest=judge.nearest, distances=judge.distances)
        return judge
    with np.load(file) as kept:
        return Judge(rows, queries, np.full(len(queries), -1), kept["nearest"], kept["distances"])


def sizes(cell: Cell) -> dict[str, Any]:
    """MAP@500 and the others of 1,000 test rows among the 10,000."""
    found = trained_on_rotated(cell)
    judge = _judge_of_test()
    values = judge.retrieval(found.bits(judge.rows), CUTS, (500,))
    return {"fit_seconds": round(found.seconds, 2), **values}


def among_all(cell: Cell) -> dict[str, Any]:
    """The same of these rows among all 240,000 that training rows are drawn from."""
    found = trained_on_rotated(cell)
    judge = _judge_of_all()
    return judge.retrieval(found.bits(judge.rows), CUTS, (500,), of_queries=found.bits(judge.queries))


@functools.lru_cache(maxsize=1)
def _trained_on_rotated(row: str, bits: int, size: int, seed: int) -> Fitted:
    _, name, params = METHODS[row]
    params = dict(params)
    if name in ("bre", "nibh"):  # they learn from a sample unless told otherwise
        params["n_train"] = size
    if name == "nibh_cg" and size > N_ROWS:  # each stage searches all pairs
        params |= {"n_iter": 12, "n_steps": 50}
    return fit(name, rotated_rows(size, seed), seed, n_bits=bits, **params)


def trained_on_rotated(cell: Cell) -> Fitted:
    """Train; the last training is at hand for the next cell."""
    return _trained_on_rotated(cell.row, cell.bits, cell.size, cell.seed)
