"""Dask's dashboard on this machine's scheduler, loaded when somebody looks at it.

Bokeh takes up to a second to import, in the process that is to start the workers; most jobs end without
anybody having looked.  The address is there from the start, and the first page asked for loads the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distributed.http.scheduler.info import IndividualPlots
from distributed.http.utils import get_handlers
from tornado import web

if TYPE_CHECKING:
    from distributed import Scheduler
    from tornado.httputil import HTTPServerRequest

PLOTS = "/individual-plots.json"  # what JupyterLab's extension asks for; Dask answers it from what is loaded
WITHOUT_BOKEH = "distributed.http.scheduler.missing_bokeh"  # Dask's page that tells what to install


def serve_when_asked(scheduler: Scheduler) -> None:
    """Let a scheduler that was started with ``dashboard=False`` load its dashboard at the first request."""
    loading = _Loading(scheduler)
    scheduler.http_application.add_application(loading)
    plots = {"dask_server": scheduler, "load": loading.load}
    scheduler.http_application.add_handlers(".*", [(PLOTS, _Plots, plots)])


class _Loading(web.Application):
    """Is asked for each page that the scheduler's HTTP server lacks; the loaded dashboard comes after it."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler: Scheduler | None = scheduler

    def find_handler(self, request: HTTPServerRequest, **options: Any) -> Any:
        """Load, and leave the request to what was loaded."""
        loaded = self.load()
        if loaded is not None:
            return loaded.find_handler(request, **options)
        return super().find_handler(request, **options)

    def load(self) -> web.Application | None:
        """Load the dashboard unless that was done before; return it if it was loaded now."""
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is None:
            return None
        try:
            from distributed.dashboard.scheduler import connect
        except ImportError:
            self.add_handlers(".*", get_handlers(server=scheduler, modules=[WITHOUT_BOKEH]))
            return None
        connect(scheduler.http_application, scheduler.http_server, scheduler)
        application: web.Application = scheduler.http_application.applications[-1]
        return application


class _Plots(IndividualPlots):  # type: ignore[misc]
    """The list of the dashboard's single plots."""

    def initialize(self, dask_server: Scheduler, load: Any) -> None:
        super().initialize(dask_server)
        self._load = load

    def get(self) -> None:
        self._load()
        super().get()
