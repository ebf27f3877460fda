"""A state as metrics: names, labels and values, and for Prometheus. Only the last needs prometheus-client.

OpenTelemetry's names, as its exporter writes them for Prometheus, where it has one: hw.gpu.memory.usage,
hw.gpu.memory.limit, process.memory.usage.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cuptimem.errors import Error
from cuptimem.live.state import UNKNOWN, LiveDevice, LiveState

LOCAL = "127.0.0.1"
EVERY = 5.0  # seconds between two states
NEEDS = "metrics for Prometheus need its client: pip install cuptimem[metrics]"
NOT_KNOWN_YET = "not known yet"  # the label of a category that only the future shows


@dataclass(frozen=True, slots=True)
class Metric:
    """One name with all its values. counter: it only grows; its samples end in _total."""

    name: str
    what: str
    values: tuple[tuple[Mapping[str, str], float], ...]
    counter: bool = False


def of(state: LiveState) -> list[Metric]:
    """Only what is known."""
    found = [*_of_devices(state.devices), *_of_program(state)]
    return [one for one in found if one.values]


def _each(devices: Iterable[LiveDevice], value: Callable[[LiveDevice], float | None], label: str = "device") -> Any:
    known = ((one.device, value(one)) for one in devices)
    return tuple(({label: name}, float(number)) for name, number in known if number is not None)


def _of_devices(devices: tuple[LiveDevice, ...]) -> Iterator[Metric]:
    categories = tuple(
        ({"device": one.device, "category": NOT_KNOWN_YET if kind == UNKNOWN else kind}, float(size))
        for one in devices
        for kind, size in one.categories.items()
    )
    yield Metric("cuptimem_allocated_bytes", "Bytes of tensors alive now", categories)
    yield Metric("cuptimem_peak_bytes", "The most bytes alive so far", _each(devices, lambda one: one.peak))
    yield Metric("cuptimem_reserved_bytes", "Held by PyTorch's allocator", _each(devices, lambda one: one.reserved))
    last = _each(devices, lambda one: one.steps[-1].peak if one.steps else None)
    yield Metric("cuptimem_step_peak_bytes", "The most bytes alive in the last step that ended", last)
    used = _each(devices, lambda one: one.used, "hw_id")
    yield Metric("hw_gpu_memory_usage_bytes", "Of the device, by all processes, when it was last asked", used)
    yield Metric("hw_gpu_memory_limit_bytes", "The device's memory", _each(devices, lambda one: one.total, "hw_id"))


def _of_program(state: LiveState) -> Iterator[Metric]:
    def one(value: float | None) -> tuple[tuple[Mapping[str, str], float], ...]:
        return () if value is None else (({}, float(value)),)

    growth = state.verdict.growth if state.verdict is not None else None
    yield Metric("process_memory_usage_bytes", "Resident memory of the process", one(state.resident))
    yield Metric("cuptimem_steps", "Steps that ended", one(state.steps), counter=True)
    yield Metric("cuptimem_growth_bytes_per_step", "What grows, as judged at 16, 32, 64, ... steps", one(growth))
    yield Metric("cuptimem_refused_requests", "Requests for memory that were refused", one(state.refused), counter=True)
    yield Metric("cuptimem_lost_events", "Events that could not be recorded", one(state.lost), counter=True)
    age = None if state.age_ns is None else state.age_ns / 1e9
    yield Metric("cuptimem_last_event_age_seconds", "Time since the last event", one(age))


# -- Prometheus ----------------------------------------------------------------------------------------------------


class Server:
    """Answers Prometheus with the newest state that it was given. Raises Error, one line."""

    def __init__(self, port: int, host: str = LOCAL) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "prometheus_client":
                raise
            raise Error(NEEDS) from None
        self._state: LiveState | None = None
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except (OSError, OverflowError) as error:
            raise Error(f"{host}:{port} cannot be listened on: {error}") from None
        self.port: int = self._server.server_port

    def __call__(self, state: LiveState) -> None:
        self._state = state

    def collect(self) -> Iterator[Any]:
        """For prometheus-client, in the thread of a request."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        state = self._state
        for metric in of(state) if state is not None else ():
            names = list(metric.values[0][0])
            family = (CounterMetricFamily if metric.counter else GaugeMetricFamily)(
                metric.name, metric.what, labels=names
            )
            for labels, value in metric.values:
                family.add_metric([labels[name] for name in names], value)
            yield family

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
