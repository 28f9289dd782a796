"""Work on a Ray cluster.

Each piece of work is a Ray task, which Ray starts again elsewhere if its process or node dies. What all work shares,
and the graphs, are put into Ray's object store once, so each node gets them once. One actor on the node of the main
process (`_Board`) collects what work reports and logs.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from evergraph import __version__
from evergraph.errors import EvergraphError
from evergraph.evaluation.results import NUMERICS_VERSION
from evergraph.evaluation.workers import LOGGER, Channel, RayEngine, Workers, graph_of, log_to, open_channel
from evergraph.ray_connection import connected, first_line

if TYPE_CHECKING:
    from evergraph.graph.evolving import EvolvingGraph

__all__ = ["RayWorkers"]

log = logging.getLogger(__name__)

_BETWEEN = 0.5  # seconds between two reports of a worker
_LOOK = 2.0  # seconds between two looks at the resources of the cluster
_USUAL = {"cpu": "num_cpus", "gpu": "num_gpus", "memory": "memory"}
_COUNTED = {"cpu": "CPU", "gpu": "GPU"}  # as a cluster names them


# --- the main process ------------------------------------------------------------------------------------------------


class RayWorkers(Workers):
    """Workers on a Ray cluster, as the main process sees them; `Workers` documents the methods."""

    def __init__(self, engine: RayEngine, shape: tuple[int, int], shared: Any, graphs: Iterable[str]) -> None:
        self.numbers = np.full(shape, np.nan)
        self._engine = engine
        self._open = contextlib.ExitStack()
        self._ray = ray = self._open.enter_context(connected(engine.address))
        try:
            self._options = _options(engine)
            here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            )
            self._board = ray.remote(_Board).options(num_cpus=0, scheduling_strategy=here).remote()
            setup = _Setup(
                id=uuid4().hex,
                versions=(__version__, NUMERICS_VERSION),
                level=logging.getLogger(LOGGER).getEffectiveLevel(),
                board=self._board,
                shape=shape,
                shared=ray.put(shared),
                graphs={path: ray.put(graph_of(path)) for path in dict.fromkeys(graphs)},
            )
            self._setup = setup.id, ray.put(setup)
            self._call = ray.remote(_call).options(max_retries=engine.retries, **self._options)
            self._running: dict[Any, Future[Any]] = {}
            self._looked, self._warned = -_LOOK, False
            self._update_size()
        except BaseException:
            self._open.close()
            raise

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:  # noqa: D102
        # The reference to the setup is inside of a list, so that Ray does not fetch it for each piece of work.
        reference = self._call.remote(self._setup[0], [self._setup[1]], function, args)
        future: Future[Any] = Future()
        self._running[reference] = future
        reference.future().add_done_callback(lambda found: _pass_on(found, future))
        return future

    def stop(self, item: int) -> None:  # noqa: D102
        self._board.stop.remote(item)

    def listen(self) -> None:  # noqa: D102
        self._running = {reference: future for reference, future in self._running.items() if not future.done()}
        with contextlib.suppress(self._ray.exceptions.RayError):
            rows, records = self._ray.get(self._board.read.remote(), timeout=10)
            for item, row in rows.items():
                self.numbers[item] = row
            for record in records:
                logging.getLogger(record.name).handle(record)
        self._update_size()

    def close(self, *, kill: bool) -> None:  # noqa: D102
        with self._open:
            if kill:
                for reference, future in self._running.items():
                    if future.cancelled() or not future.done():  # `completed` has cancelled them already
                        self._ray.cancel(reference, force=True)
            else:
                self.listen()
            self._ray.kill(self._board)

    def _update_size(self) -> None:
        """Set the number of items to submit; nodes may join and leave."""
        if time.monotonic() < self._looked + _LOOK:
            return
        self._looked = time.monotonic()
        needed = {
            _COUNTED.get(name, name): amount for name, amount in ({"cpu": 1.0} | dict(self._engine.resources)).items()
        }
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        room = sum(
            int(min((node.get(name, 0) / amount for name, amount in needed.items() if amount > 0), default=1))
            for node in nodes
        )
        if not room and not self._warned:
            wanted = ", ".join(f"{name}={amount:g}" for name, amount in needed.items())
            log.warning("No node of the Ray cluster has %s. Waiting for one that has.", wanted)
            self._warned = True
        self.parallel = self._engine.jobs or max(room, 1)
        # Twice as many as can run, so that no worker idles and a cluster that can grow sees that it should.
        self.at_once = self._engine.jobs or 2 * self.parallel


def _options(engine: RayEngine) -> dict[str, Any]:
    own = {name: amount for name, amount in engine.resources.items() if name not in _USUAL}
    usual = {_USUAL[name]: amount for name, amount in engine.resources.items() if name in _USUAL}
    return {"num_cpus": 1, **usual} | ({"resources": own} if own else {})


def _pass_on(found: Future[Any], future: Future[Any]) -> None:
    """Set the result or error of a Ray task; an error of the work as it was raised there."""
    from ray import exceptions

    error = found.exception()
    if error is None:
        result = found.result()
        if not future.cancelled():
            future.set_result(result)
        return
    if isinstance(error, exceptions.RayTaskError):
        error = error.cause
    elif isinstance(error, exceptions.RayError):
        lost = EvergraphError(
            f"the work was lost on the Ray cluster ({type(error).__name__}: {first_line(error)})",
            fix="run the same command again: stored results are not lost",
        )
        lost.__cause__ = error
        error = lost
    if not future.cancelled():
        future.set_exception(error)


# --- workers ---------------------------------------------------------------------------------------------------------


class _Board:
    """An actor that has the newest numbers and log of all workers."""

    def __init__(self) -> None:
        self._rows: dict[int, NDArray[np.float64]] = {}
        self._records: list[logging.LogRecord] = []
        self._stopped: set[int] = set()

    def write(self, rows: Mapping[int, NDArray[np.float64]], records: list[logging.LogRecord]) -> set[int]:
        self._rows |= rows
        self._records += records
        return self._stopped

    def read(self) -> tuple[dict[int, NDArray[np.float64]], list[logging.LogRecord]]:
        found = self._rows, self._records
        self._rows, self._records = {}, []
        return found

    def stop(self, item: int) -> None:
        self._stopped.add(item)


@dataclass(frozen=True)
class _Setup:
    """What a worker needs to know of a command."""

    id: str
    versions: tuple[str, int]
    level: int
    board: Any
    shape: tuple[int, int]
    shared: Any
    graphs: Mapping[str, Any]


_channels: dict[str, _RayChannel] = {}
"""In a worker: the channel of the command that it serves, by its id."""


def _call(id: str, setup: list[Any], function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Run a piece of work in a worker."""
    import ray

    if id not in _channels:
        _channels.clear()  # a process may serve several commands of one script, one after the other
        _channels[id] = _RayChannel(ray.get(setup[0]))
    with _channels[id].open():
        return function(*args)


class _RayChannel(Channel):
    """Connects a worker with the main process; a thread sends what has changed."""

    def __init__(self, setup: _Setup) -> None:
        if setup.versions != (__version__, NUMERICS_VERSION):
            there, here = setup.versions, (__version__, NUMERICS_VERSION)
            raise EvergraphError(
                f"the command runs Evergraph {there[0]} (numerics version {there[1]}), but a node of the cluster has "
                f"{here[0]} (numerics version {here[1]})",
                fix="install the same version on all nodes",
            )
        self._setup = setup
        self._rows: dict[int, NDArray[np.float64]] = {}
        self._changed: set[int] = set()
        self._records: list[logging.LogRecord] = []
        self._stopped: set[int] = set()
        self._shared: list[Any] = []
        self._graphs: dict[str, tuple[EvolvingGraph, str]] = {}
        self._lock = threading.Lock()
        log_to(_ToList(self._records), setup.level)

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Connect a piece of work."""
        before, ended = open_channel(self), threading.Event()

        def send() -> None:
            while not ended.wait(_BETWEEN):
                self.flush()

        threading.Thread(target=send, daemon=True).start()
        try:
            yield
        finally:
            ended.set()
            if self._changed or self._records:
                self.flush()
            open_channel(before)

    def given(self) -> Any:
        import ray

        if not self._shared:
            self._shared.append(ray.get(self._setup.shared))
        return self._shared[0]

    def graph(self, path: str) -> tuple[EvolvingGraph, str] | None:
        import ray

        if path not in self._graphs and path in self._setup.graphs:
            self._graphs[path] = ray.get(self._setup.graphs[path])
        return self._graphs.get(path)

    def report(self, item: int, column: int, value: float) -> None:
        with self._lock:
            self._rows.setdefault(item, np.full(self._setup.shape[1], np.nan))[column] = value
            self._changed.add(item)

    def stopped(self, item: int) -> bool:
        return item in self._stopped

    def flush(self) -> None:
        """Send what has changed, and learn what should stop. Progress that cannot be sent is not worth an error."""
        import ray

        with self._lock:
            rows = {item: self._rows[item].copy() for item in self._changed}
            records = list(self._records)
            self._changed.clear()
            del self._records[: len(records)]
        with contextlib.suppress(ray.exceptions.RayError):
            self._stopped = ray.get(self._setup.board.write.remote(rows, records), timeout=10)


class _ToList(QueueHandler):
    """Keeps records in a list."""

    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__(SimpleQueue())
        self._records = records

    def enqueue(self, record: logging.LogRecord) -> None:
        self._records.append(record)
