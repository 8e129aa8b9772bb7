"""As much of NVIDIA FLARE's interface as our component touches, in one process: for the component's own tests and for changed
engines. The real one is in `tests/net/test_flare.py`."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest

from support.engines import ENGINES


class Shareable(dict[str, Any]):
    """Theirs is a dictionary with headers."""

    def get_peer_props(self) -> Any:
        return self.get("__peer_props__")

    def get_return_code(self) -> str:
        return str(self.get("rc", "OK"))


def make_reply(code: str) -> Shareable:
    return Shareable(rc=code)


class _Codes:
    """Return codes, events and keys: names are all that matters."""

    def __getattr__(self, name: str) -> str:
        return name


class Component:
    def __init__(self) -> None:
        self.said: list[str] = []

    def log_error(self, context: Any, text: str) -> None:
        self.said.append(text)


Alter = Callable[[str, str, Shareable], list[tuple[str, Shareable]]]


class Network:
    """The engine of all sites. `alter` maps (sender, to, message) to what arrives: (claimed sender, message)."""

    def __init__(self, alter: Alter = lambda sender, to, message: [(sender, message)]) -> None:
        self.alter, self.handlers, self.names = alter, {}, []
        self.log_streaming = False
        self.lost: set[str] = set()
        self.under_way: dict[tuple[str, str], int] = {}
        self.most_under_way = 0
        self._lock = threading.Lock()

    def engine(self, name: str) -> Engine:
        return Engine(self, name)


class Engine:
    """One site's."""

    def __init__(self, network: Network, name: str) -> None:
        self._network, self._name = network, name

    def register_aux_message_handler(self, topic: str, handler: Any) -> None:
        self._network.handlers[self._name] = handler

    def get_clients(self) -> list[Any]:
        return [types.SimpleNamespace(name=name) for name in self._network.names]

    def new_context(self) -> Any:
        import contextlib

        return contextlib.nullcontext()

    def send_aux_request(self, *, targets: list[str], topic: str, request: Shareable, timeout: float, **_: Any) -> Any:
        (to,), network = targets, self._network
        if to not in network.handlers:
            return {to: make_reply("TOPIC_UNKNOWN")}
        if to in network.lost or self._name in network.lost:
            return {} if to in network.lost else {to: make_reply("TIMEOUT")}  # both happen, and neither raises
        with network._lock:
            now = network.under_way[self._name, to] = network.under_way.get((self._name, to), 0) + 1
            network.most_under_way = max(network.most_under_way, now)
        try:
            reply: Any = make_reply("TIMEOUT")
            for sender, message in network.alter(self._name, to, request):
                found = network.handlers[to](topic, Shareable(message, __peer_props__={"IDENTITY_NAME": sender}), None)
                reply = found if message is request else reply
            return {to: reply}
        finally:
            with network._lock:
                network.under_way[self._name, to] -= 1


def play(monkeypatch: pytest.MonkeyPatch, network: Network) -> Any:
    """Our component, imported against this network."""
    codes = _Codes()
    modules: dict[str, dict[str, Any]] = {
        "nvflare.apis.controller_spec": {"Task": object},
        "nvflare.apis.event_type": {"EventType": codes},
        "nvflare.apis.executor": {"Executor": Component},
        "nvflare.apis.fl_constant": {"ReservedKey": codes, "ReturnCode": codes},
        "nvflare.apis.impl.controller": {"Controller": Component},
        "nvflare.apis.shareable": {"Shareable": Shareable, "make_reply": make_reply},
        "nvflare.app_common.logging.constants": {"is_log_streaming_allowed": lambda context: network.log_streaming},
    }
    for name, found in modules.items():
        module = types.ModuleType(name)
        vars(module).update(found)
        parts = name.split(".")
        for end in range(1, len(parts)):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(str(ENGINES))
    monkeypatch.delitem(sys.modules, "blindbayes_engines.flare", raising=False)
    import blindbayes_engines.flare as component  # type: ignore[import-not-found]

    monkeypatch.delitem(sys.modules, "blindbayes_engines.flare")
    return component
