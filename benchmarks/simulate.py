"""A round on many workers, event by event: stragglers, deaths, the scheduler, the tree.

    python benchmarks/simulate.py [--rows 1000000000] [--features 768] [--workers 100] [--seeds 5]

The pieces, their placement and the merges are those of `bitfleet.cluster` (the same functions), the cost of a
block is measured here by `bitfleet.plan` on generated rows, and everything else is simulated: tasks pass
through a scheduler that takes its time for each, a merge fetches the sums that its worker does not hold, slow
workers are slow for a whole round, and a worker that dies takes the sums it holds with it: they are computed
again, as Dask would, down to the pieces.  A new worker takes its place after a while.  Prints one JSON line
per method and scenario, beside the round that the cost model of `bitfleet plan` says.
"""

from __future__ import annotations

import argparse
import heapq
import json
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bitfleet as bf
import numpy as np
from bitfleet.cluster import tree
from bitfleet.cluster.placement import Placement
from bitfleet.pipeline.config import as_job
from bitfleet.pipeline.plan import _measure
from bitfleet.pipeline.plan_model import (
    ROUND_SECONDS,
    STATE_BANDWIDTH,
    TASK_SECONDS,
    Hardware,
    Pass,
    piece_leaves,
    round_seconds,
)

METHODS: dict[str, dict[str, Any]] = {
    "itq": {"n_bits": 64, "n_iter": 50},
    "posh": {"n_bits": 1024, "n_active": 32, "n_epochs": 10},
}
IN_FLIGHT = 2
LATENCY = 0.002


@dataclass(frozen=True)
class Weather:
    """What goes wrong.

    Attributes
    ----------
    noise : float
        Spread (of the logarithm) of the time of one task.
    slow_share, slow_factor : float
        Workers that are slow for the whole round, and how much.
    hours_between_deaths : float
        Of one worker; 0: none dies.
    replacement : float
        Seconds until another one takes its place.
    """

    noise: float = 0.0
    slow_share: float = 0.0
    slow_factor: float = 3.0
    hours_between_deaths: float = 0.0
    replacement: float = 30.0


SCENARIOS = {
    "calm": Weather(),
    "noise of 10 %": Weather(0.1),
    "5 % of workers three times as slow": Weather(0.1, 0.05),
    "and each dies once an hour": Weather(0.1, 0.05, hours_between_deaths=1.0),
}


class Round:
    """One round; `run` returns its seconds."""

    def __init__(self, costs: Any, block: float, there: Hardware, fan_in: int, weather: Weather, seed: int):
        self.costs, self.block, self.there, self.fan_in, self.weather = costs, block, there, fan_in, weather
        self.rng = np.random.default_rng(seed)
        self.n_leaves = costs.n_leaves
        size = piece_leaves(self.n_leaves, there, fan_in)
        self.pieces = list(tree.subtrees(self.n_leaves, size))
        self.is_piece = set(self.pieces)
        self.names = [str(number) for number in range(there.workers)]
        slow = self.rng.random(there.workers) < weather.slow_share
        self.slowness = dict(zip(self.names, np.where(slow, weather.slow_factor, 1.0), strict=True))
        self.alive = set(self.names)
        positions = [span.start / self.n_leaves for span in self.pieces]
        self.placement = Placement(positions, dict.fromkeys(self.names, IN_FLIGHT), IN_FLIGHT)
        self.homes: dict[tree.Span, str] = {}  # whom the placement counts a piece for
        self.queues: dict[str, list[tuple[int, tree.Span]]] = {name: [] for name in self.names}
        self.at_work: dict[str, tree.Span | None] = dict.fromkeys(self.names)
        self.held: dict[tree.Span, str] = {}  # finished sums, and who holds them
        self.asked: set[tree.Span] = set()  # queued or at work
        self.load = Counter(dict.fromkeys(self.names, 0))  # tasks sent to a worker and not done
        self.lives = Counter(dict.fromkeys(self.names, 0))
        self.events: list[tuple[float, int, str, Any]] = []
        self.now = self.scheduler_free = 0.0
        self.count = self.deaths = self.recomputed = self.sent = 0

    def run(self) -> float:
        for name in self.names:
            self._plan_death(name)
        self._deal()
        root = tree.Span(0, self.n_leaves)
        while root not in self.held:
            self.now, _, kind, what = heapq.heappop(self.events)
            getattr(self, f"_{kind}")(*what)
        state = self.costs.state_bytes / STATE_BANDWIDTH
        return self.now + self.costs.advance + 2 * state + ROUND_SECONDS

    # events ---------------------------------------------------------------------------------------------

    def _arrive(self, name: str, life: int, priority: int, span: tree.Span) -> None:
        if life != self.lives[name]:
            self._send(span, priority)  # whom it was sent to has died meanwhile
            return
        heapq.heappush(self.queues[name], (priority, span))
        self._work(name)

    def _done(self, name: str, life: int, span: tree.Span) -> None:
        if life != self.lives[name]:
            return
        self.at_work[name] = None
        self.load[name] -= 1
        self.asked.discard(span)
        self.held[span] = name
        if span not in self.is_piece:
            for part in tree.parts(span, self.fan_in):
                self.held.pop(part, None)
        if span in self.homes:
            self.placement.done(self.homes.pop(span))
        self._merge_above(span)
        self._deal()
        self._work(name)

    def _die(self, name: str) -> None:
        self.deaths += 1
        self.lives[name] += 1
        self.load[name] = 0
        self.alive.discard(name)
        lost = [span for span, holder in self.held.items() if holder == name]
        waiting = [span for _, span in self.queues[name]]
        waiting += [self.at_work[name]] if self.at_work[name] is not None else []
        self.queues[name], self.at_work[name] = [], None
        for span in lost:
            del self.held[span]
        for span in waiting:
            self.asked.discard(span)
        self.placement.update(dict.fromkeys(sorted(self.alive), IN_FLIGHT))
        for span in (*lost, *waiting):
            self._want(span)
        self._at(self.weather.replacement, "return", (name,))

    def _return(self, name: str) -> None:
        self.alive.add(name)
        self.placement.update(dict.fromkeys(sorted(self.alive, key=int), IN_FLIGHT))
        self._plan_death(name)
        self._deal()

    # what follows from them -------------------------------------------------------------------------------

    def _deal(self) -> None:
        for number, name in self.placement.take():
            self.homes[self.pieces[number]] = name
            self._send(self.pieces[number], 1, name)

    def _want(self, span: tree.Span) -> None:
        """Compute a sum that is lost, and what it needs."""
        if span in self.held or span in self.asked:
            return
        if span in self.is_piece:
            self.recomputed += 1
            self._send(span, 0)
            return
        parts = tree.parts(span, self.fan_in)
        for part in parts:
            self._want(part)
        if all(part in self.held for part in parts):
            self._send(span, 0)

    def _merge_above(self, span: tree.Span) -> None:
        above = tree.parent(span, self.n_leaves, self.fan_in)
        if above is None or above in self.asked or above in self.held:
            return
        if all(part in self.held for part in tree.parts(above, self.fan_in)):
            self._send(above, 0)

    def _send(self, span: tree.Span, priority: int, name: str | None = None) -> None:
        self.asked.add(span)
        if name not in self.alive:
            name = self._choose(span)
        self.load[name] += 1
        self.scheduler_free = max(self.now, self.scheduler_free) + TASK_SECONDS
        wait = self.scheduler_free - self.now + LATENCY
        self._at(wait, "arrive", (name, self.lives[name], priority, span))

    def _choose(self, span: tree.Span) -> str:
        """Return who holds most of a merge's parts, or who has least to do."""
        if span not in self.is_piece:
            holders = Counter(self.held[part] for part in tree.parts(span, self.fan_in) if part in self.held)
            if holders:
                return holders.most_common(1)[0][0]
        return min(sorted(self.alive, key=int), key=lambda name: self.load[name])

    def _work(self, name: str) -> None:
        if self.at_work[name] is not None or not self.queues[name]:
            return
        _, span = heapq.heappop(self.queues[name])
        if span not in self.is_piece and any(p not in self.held for p in tree.parts(span, self.fan_in)):
            self.load[name] -= 1
            self.asked.discard(span)  # a part was lost while it waited
            self._want(span)
            self._work(name)
            return
        self.at_work[name] = span
        self._at(self._seconds(name, span), "done", (name, self.lives[name], span))

    def _seconds(self, name: str, span: tree.Span) -> float:
        factor = self.slowness[name] * float(np.exp(self.weather.noise * self.rng.standard_normal()))
        if span in self.is_piece:
            return factor * (span.n_leaves * self.block + (span.n_leaves - 1) * self.costs.merge)
        parts = tree.parts(span, self.fan_in)
        far = sum(self.held[part] != name for part in parts)
        self.sent += far
        return far * (LATENCY + self.costs.sum_bytes / self.there.bandwidth) + factor * (
            (len(parts) - 1) * self.costs.merge
        )

    def _plan_death(self, name: str) -> None:
        if self.weather.hours_between_deaths:
            self._at(float(self.rng.exponential(3600 * self.weather.hours_between_deaths)), "die", (name,))

    def _at(self, wait: float, kind: str, what: tuple[Any, ...]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + wait, self.count, kind, what))


def measured(folder: Path, rows: int, features: int, method: str) -> Any:
    """Return what `bitfleet.plan` measures for so many rows, on two blocks of generated ones."""
    path = folder / "rows.zarr"
    if not path.exists():
        with bf.DatasetWriter(path, n_features=features, dtype="float16") as writer:
            scale = 1 / np.sqrt(1 + np.arange(features))
            some = np.random.default_rng(0).standard_normal((16_384, features)) * scale
            writer.append(some.astype(np.float16))
    job = {"data": {"path": str(path)}, "method": {"name": method, **METHODS[method]}, "run": {"path": "run"}}
    return _measure(as_job(job), rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10**9)
    parser.add_argument("--features", type=int, default=768)
    parser.add_argument("--workers", type=int, nargs="+", default=[100])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for method in options.methods:
            found = measured(Path(folder), options.rows, options.features, method)
            for workers in options.workers:
                report(method, found, Hardware(workers), options.seeds)


def report(method: str, found: Any, there: Hardware, n_seeds: int) -> None:
    """Print what the last of the rounds that were gone through takes, in each scenario."""
    costs, gone = found.rehearsal.rounds[-1], found.rehearsal
    data = Pass(gone.fetch, gone.widen, found.file_bytes, 0.0, found.leaves.fan_in)
    block = costs.update + gone.fetch + gone.widen
    model = round_seconds(costs, data, there, first=False)
    for name, weather in SCENARIOS.items():
        rounds = [
            Round(costs, block, there, found.leaves.fan_in, weather, seed)
            for seed in range(1 if weather == Weather() else n_seeds)
        ]
        seconds = [one.run() for one in rounds]
        result = {
            "benchmark": "simulate",
            "method": method,
            "rows": found.leaves.n_rows,
            "features": found.dataset.n_features,
            "workers": there.workers,
            "blocks": costs.n_leaves,
            "seconds_a_block": round(block, 4),
            "rounds": found.rounds,
            "scenario": name,
            "round_seconds": round(float(np.median(seconds)), 1),
            "longest": round(max(seconds), 1),
            "model_seconds": round(model, 1),
            "efficiency": round(costs.n_leaves * block / there.workers / float(np.median(seconds)), 3),
            "deaths": float(np.mean([one.deaths for one in rounds])),
            "pieces_again": float(np.mean([one.recomputed for one in rounds])),
            "mib_sent": round(float(np.mean([one.sent for one in rounds])) * costs.sum_bytes / 2**20),
            "train_hours": round(found.rounds * float(np.median(seconds)) / 3600, 2),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
