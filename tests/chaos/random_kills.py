"""Kills at random: driver, worker or scheduler, at any time of a job; each job must end in the same bits.

``python tests/chaos/random_kills.py FOLDER [START STOP]`` makes the kills numbered so (of 100) and appends a
line for each to ``FOLDER/kills.jsonl``; what is there already is not done again, so it may be interrupted.
Everything about a kill follows from its number, but for the time that the machine takes.

An ordinary module, unlike test modules: ``conftest.py`` puts its folder on the path.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import bitfleet as bf
import numpy as np
import psutil
from bitfleet.pipeline.inspection import verify_path
from bitfleet.storage import requests
from chaos_cases import PLAN, digits, method_of
from foreign import Site, kill, wait_until

CASES = ("lsh", "itq", "posh", "spherical_hash", "nibh_cg", "ssbc")
TARGETS = ("driver", "driver", "driver here", "worker", "worker", "worker", "scheduler", "scheduler")
N_WORKERS = 2
PATIENCE = 600.0


class Killer:
    """Makes kills on one cluster after another, in a folder that holds data, runs and references.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.data = folder / "x.zarr"
        if not self.data.exists():
            np.save(folder / "x.npy", digits(1000))
            bf.ingest(folder / "x.npy", self.data)
        self._site: Site | None = None
        self._references: dict[str, tuple[str, str]] = {}
        self._seconds: dict[str, float] = {}

    def __enter__(self) -> Killer:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._site is not None:
            self._site.close()

    def kill(self, number: int) -> dict[str, Any]:
        """Make one kill; return what was killed when, and what was found afterwards."""
        chance = random.Random(f"kill {number}")
        case, target, when = chance.choice(CASES), chance.choice(TARGETS), chance.random()
        expected, seconds = self._reference(case), self._duration(case)
        folder = self.folder / f"{number:03d}"
        begun, delay = time.monotonic(), when * seconds
        while True:
            shutil.rmtree(folder, ignore_errors=True)
            if target == "driver here":
                found = self._kill_driver_here(case, folder, delay)
            else:
                found = self._kill_in_cluster(case, folder, target, delay, chance)
            if found["state"] == "running" or delay < 0.01:
                break
            delay /= 2  # it had ended before it was killed
        digests = bf.load(folder / "run").digest, bf.open_codes(folder / "codes.zarr").digest
        problems = verify_path(folder / "run") + verify_path(folder / "codes.zarr")
        shutil.rmtree(folder)
        return {
            "number": number,
            "case": case,
            "target": target,
            "delay": round(delay, 3),
            **found,
            "same": digests == expected,
            "digest": digests[0],
            "problems": problems,
            "seconds": round(time.monotonic() - begun, 1),
        }

    def _kill_in_cluster(
        self, case: str, folder: Path, target: str, delay: float, chance: random.Random
    ) -> dict[str, Any]:
        site = self._started()
        job = self._submit(case, folder, site)
        time.sleep(delay)
        at = job.status()
        orphans: list[str] = []
        if target == "scheduler":
            site.kill_scheduler()
            orphans = site.left()
            site.close()
            self._site = None
            job = self._submit(case, folder, self._started())
        else:
            driver = requests.announced_driver(job.run)
            workers = site.worker_pids()
            driven = driver is not None and driver["pid"] in workers
            kill(driver["pid"] if target == "driver" and driven else chance.choice(workers))
        job.result(timeout=PATIENCE)
        return {"round": at["round"], "stage": at["stage"], "state": at["state"], "orphans": orphans}

    def _kill_driver_here(self, case: str, folder: Path, delay: float) -> dict[str, Any]:
        """Kill a driver that has workers of its own, and see that they end with it."""
        name, params = method_of(case)
        flags = [word for key, value in params.items() for word in ("--set", f"{key}={value}")]
        plan = ["--block-rows", str(PLAN["block_rows"]), "--fan-in", str(PLAN["fan_in"])]
        run = str(folder / "run")
        command = ["train", str(self.data), run, "--method", name, *flags, *plan, "--workers", "1", "--quiet"]
        driver = subprocess.Popen([sys.executable, "-m", "bitfleet.pipeline.cli", *command])
        manifests = folder / "run/manifests"
        wait_until(lambda: list(manifests.glob("0*")) or driver.poll() is not None, PATIENCE)
        time.sleep(delay)
        found = bf.Job(run).status()
        children = psutil.Process(driver.pid).children(recursive=True) if driver.poll() is None else []
        driver.kill()
        driver.wait()
        _, orphans = psutil.wait_procs(children, timeout=30)
        model = bf.resume(run, scheduler="serial")
        bf.encode(model, self.data, folder / "codes.zarr")
        left = [" ".join(orphan.cmdline()) for orphan in orphans]
        return {"round": found["round"], "stage": found["stage"], "state": found["state"], "orphans": left}

    def _submit(self, case: str, folder: Path, site: Site) -> bf.Job:
        name, params = method_of(case)
        job = {
            "data": {"path": str(self.data)},
            "method": {"name": name, **params},
            "run": {"path": str(folder / "run"), **PLAN},
            "encode": {"path": str(folder / "codes.zarr")},
        }
        return bf.submit(job, scheduler=site.address)

    def _started(self) -> Site:
        if self._site is None:
            folder = self.folder / f"site-{time.monotonic_ns()}"
            folder.mkdir()
            self._site = Site(folder, N_WORKERS)
        return self._site

    def _reference(self, case: str) -> tuple[str, str]:
        """Return the digests of model and codes of a run left alone in this process."""
        if case not in self._references:
            name, params = method_of(case)
            folder = self.folder / f"reference-{case}"
            shutil.rmtree(folder, ignore_errors=True)
            model = bf.train(self.data, folder / "run", name, **PLAN, **params)
            self._references[case] = model.digest, bf.encode(model, self.data, folder / "codes").digest
        return self._references[case]

    def _duration(self, case: str) -> float:
        """Return how long a job takes that nobody disturbs, on workers that have done one before."""
        if case not in self._seconds:
            for _ in range(2):
                site, folder = self._started(), self.folder / f"undisturbed-{case}"
                shutil.rmtree(folder, ignore_errors=True)
                job, begun = self._submit(case, folder, site), time.monotonic()
                job.wait(PATIENCE, poll=0.05)
                self._seconds[case] = time.monotonic() - begun
        return self._seconds[case]


def passed(line: dict[str, Any]) -> bool:
    """Tell whether a kill has left the right bits, nothing corrupt and nobody alive."""
    return line["same"] and not line["problems"] and not line["orphans"]


def main(folder: str, start: str = "0", stop: str = "100") -> int:
    log = Path(folder) / "kills.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {line["number"]: line for line in lines}
    with Killer(Path(folder)) as killer:
        for number in range(int(start), int(stop)):
            if number not in done:
                try:
                    done[number] = killer.kill(number)
                except bf.JobFailed as error:
                    done[number] = {"number": number, "same": False, "problems": [str(error)], "orphans": []}
                except (TimeoutError, AssertionError, bf.ClusterLost) as error:  # the machine was too slow
                    print(f"kill {number} could not be made: {error!r}", file=sys.stderr, flush=True)
                    continue
                with log.open("a") as file:
                    file.write(json.dumps(done[number]) + "\n")
                print(json.dumps(done[number]), flush=True)
    failed = [line for line in done.values() if not passed(line)]
    print(f"{len(done)} kills, {len(failed)} failed: {[line['number'] for line in failed]}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
