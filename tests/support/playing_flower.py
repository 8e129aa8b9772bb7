"""As much of Flower's interface as our app touches, in one process. The real one is in `tests/net/test_flower.py`."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from support.engines import ENGINES


class Message:
    """Content, and what it answers."""

    def __init__(self, content: Any, *, reply_to: Message | None = None, dst_node_id: int = 0, **_: Any) -> None:
        self.content, self.node, self.error = content, dst_node_id, False
        self.metadata = types.SimpleNamespace(reply_to_message_id="" if reply_to is None else reply_to.number)
        self.number = ""

    def has_error(self) -> bool:
        return self.error


class _App:
    def query(self, kind: str) -> Callable[[Any], Any]:
        return lambda function: function

    def main(self) -> Callable[[Any], Any]:
        return lambda function: function


class Grid:
    """Calls each node's function as its message is pulled. `nodes` maps node ids to what answers there."""

    def __init__(self, nodes: dict[int, Callable[[Message], Message]], stop: Callable[[], bool]) -> None:
        self._nodes, self._stop, self._sent, self._count = nodes, stop, {}, 0

    def get_node_ids(self) -> list[int]:
        if self._stop():
            raise KeyboardInterrupt  # `flwr stop`
        return list(self._nodes)

    def push_messages(self, messages: list[Message]) -> list[str]:
        for message in messages:
            self._count += 1
            message.number = str(self._count)
            self._sent[message.number] = message
        return [message.number for message in messages]

    def pull_messages(self, numbers: list[str]) -> list[Message]:
        return [self._nodes[self._sent[number].node](self._sent.pop(number)) for number in numbers if number in self._sent]


def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Our app, imported against these."""
    modules: dict[str, dict[str, Any]] = {
        "flwr": {},
        "flwr.app": {"ConfigRecord": dict, "RecordDict": dict, "Message": Message, "Context": object},
        "flwr.clientapp": {"ClientApp": _App},
        "flwr.serverapp": {"ServerApp": _App, "Grid": Grid},
    }
    for name, found in modules.items():
        module = types.ModuleType(name)
        vars(module).update(found)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(str(ENGINES))
    monkeypatch.delitem(sys.modules, "blindbayes_engines.flower", raising=False)
    import blindbayes_engines.flower as app  # type: ignore[import-not-found]

    monkeypatch.delitem(sys.modules, "blindbayes_engines.flower")
    return app
