"""Reports in a real browser: nothing fetched, no error, sorting, the gallery, two widths, two schemes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

import bitfleet as bf
import pytest
from bitfleet.pipeline.report import write_report
from bitfleet.pipeline.run_job import evaluate_run
from tornado.websocket import websocket_connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]
SIZES = [(1400, 900), (390, 844)]
SCHEMES = ["light", "dark"]


class Tab:
    """One page of a browser, driven by the DevTools protocol."""

    def __init__(self, connection: Any) -> None:
        self._connection, self._session, self._last = connection, None, 0
        self.events: list[dict[str, Any]] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        await self._connection.write_message(json.dumps(message))
        while True:
            answer = json.loads(await asyncio.wait_for(self._connection.read_message(), 30))
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    async def open(self, path: Path, width: int, height: int, scheme: str, *, script: bool = True) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await self.call("Emulation.setEmulatedMedia", features=[feature])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        await self.call("Emulation.setScriptExecutionDisabled", value=not script)
        seen = len(self.events)
        await self.call("Page.navigate", url=path.as_uri())
        for _ in range(300):
            if any(event.get("method") == "Page.loadEventFired" for event in self.events[seen:]):
                return
            await self.value("1")
            await asyncio.sleep(0.05)
        raise TimeoutError(path)

    async def value(self, expression: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def screenshot(self, path: Path) -> None:
        shot = await self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[Any]:
        """Errors of the console, and everything that the page asked for but itself and its own pictures."""
        found: list[Any] = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                found.append(params)
            if method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                found += [url] * (not url.startswith(("data:image/png", "file:")) or not url.strip())
        return found


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a browser that has a profile of its own."""
    profile = tmp_path_factory.mktemp("profile")
    command = [str(CHROMIUM), "--headless=new", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    command += ["--remote-debugging-port=0", f"--user-data-dir={profile}", "--remote-allow-origins=*"]
    command += ["--no-sandbox"] if os.geteuid() == 0 else []
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port = profile / "DevToolsActivePort"
        for _ in range(600):
            if port.exists() and len(port.read_text().split()) == 2:
                break
            time.sleep(0.1)
        number, address = port.read_text().split()
        yield f"ws://127.0.0.1:{number}{address}"
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three evaluated methods on some hundred digits, on one page."""
    folder = tmp_path_factory.mktemp("report")
    images, labels = bf.load_digits()
    for name, part in (("digits", slice(0, 800)), ("queries", slice(800, 900))):
        attrs, shape = {"image_shape": [28, 28]}, {"n_features": 784, "dtype": "uint8", "with_labels": True}
        with bf.DatasetWriter(folder / f"{name}.zarr", attrs=attrs, **shape) as writer:
            writer.append(images[part], labels[part])
    data, queries = folder / "digits.zarr", folder / "queries.zarr"
    for name, params in (("itq", {"n_iter": 5}), ("lsh", {}), ("isohash", {})):
        bf.train(data, folder / name, name, n_bits=16, **params)
        evaluate_run(folder / name, data, queries, ("map@100", "recall10@100"))
    return write_report(
        folder / "itq", beside=[folder / "lsh", folder / "isohash"], dest=folder / "report.html"
    )


def visit(browser: str, steps: Callable[[Tab], Awaitable[None]]) -> None:
    """Do ``steps`` in a page of its own, which must not complain."""

    async def run() -> None:
        connection = await websocket_connect(browser, max_message_size=2**28)
        tab = Tab(connection)
        try:
            await steps(tab)
            assert tab.complaints() == []
        finally:
            connection.close()

    asyncio.run(run())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES, ids=["wide", "phone"])
def test_it_fits_and_follows_the_scheme(
    browser: str, report: Path, size: tuple[int, int], scheme: str
) -> None:
    async def steps(tab: Tab) -> None:
        await tab.open(report, *size, scheme)
        assert await tab.value("document.documentElement.scrollWidth") <= size[0]
        colour = await tab.value("getComputedStyle(document.body).backgroundColor")
        brightness = sum(int(part) for part in colour.strip("rgb()").split(","))
        assert (brightness > 600) == (scheme == "light")
        broken = "[...document.images].filter(i => i.src && !(i.complete && i.naturalWidth)).length"
        assert await tab.value(broken) == 0
        if folder := os.environ.get("BITFLEET_SCREENSHOTS"):
            from pathlib import Path

            await tab.screenshot(Path(folder) / f"report-{size[0]}-{scheme}.png")

    visit(browser, steps)


def test_tables_are_sorted(browser: str, report: Path) -> None:
    async def steps(tab: Tab) -> None:
        await tab.open(report, *SIZES[0], "light")
        head = "document.querySelectorAll('table.metrics thead th')"
        column = "[...document.querySelectorAll('table.metrics tbody tr')].map(r => r.cells[{}].{})"
        before = await tab.value(column.format(0, "textContent"))
        assert len(before) == 3
        for number in (1, 2):
            await tab.value(f"{head}[{number}].querySelector('button').click()")
            values = [float(x) for x in await tab.value(column.format(number, "dataset.value"))]
            assert values == sorted(values, reverse=True)
            assert await tab.value(f"{head}[{number}].getAttribute('aria-sort')") == "descending"
        await tab.value(f"{head}[2].querySelector('button').click()")
        values = [float(x) for x in await tab.value(column.format(2, "dataset.value"))]
        assert values == sorted(values)
        await tab.value(f"{head}[0].querySelector('button').click()")
        assert await tab.value(column.format(0, "textContent")) == sorted(before, key=str.casefold)
        assert await tab.value("document.querySelectorAll('[aria-sort]').length") == 1

    visit(browser, steps)


def test_a_picture_of_the_gallery_is_enlarged(browser: str, report: Path) -> None:
    async def steps(tab: Tab) -> None:
        await tab.open(report, *SIZES[1], "dark")
        small = "document.querySelector('.item img')"
        width = await tab.value(f"{small}.getBoundingClientRect().width")
        await tab.value(f"{small}.click()")
        assert await tab.value("document.querySelector('dialog').open") is True
        assert (
            await tab.value("document.querySelector('dialog img').getBoundingClientRect().width") > 3 * width
        )
        shown = await tab.value("document.querySelector('dialog p').textContent")
        assert shown == await tab.value(f"{small}.alt")
        await tab.value("document.querySelector('dialog').click()")
        assert await tab.value("document.querySelector('dialog').open") is False

    visit(browser, steps)


def test_without_scripts_all_is_there(browser: str, report: Path) -> None:
    async def steps(tab: Tab) -> None:
        texts = []
        for script in (True, False):
            await tab.open(report, *SIZES[0], "light", script=script)
            root = (await tab.call("DOM.getDocument", depth=0))["root"]["nodeId"]
            main = (await tab.call("DOM.querySelector", nodeId=root, selector="main"))["nodeId"]
            found = (await tab.call("DOM.querySelectorAll", nodeId=main, selector="tr, li, svg, img"))[
                "nodeIds"
            ]
            texts.append(len(found))
            tab._session = None
        assert texts[0] == texts[1] > 50

    visit(browser, steps)
