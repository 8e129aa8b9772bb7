"""NVIDIA FLARE 2.9: frames of the site's agent in request/reply messages between the job's processes.

One message is under way to each site; it holds what has queued up meanwhile. Messages are numbered, because one that was given
up may still arrive after the next. FLARE's calls do not raise: after an empty answer, or one with a return code, the message is
repeated, and then the site is down until a ping is answered; agents make good what was lost. The sender's name is what the
sender wrote; no agent believes it. Nothing of a frame is ever logged.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from typing import Any

from nvflare.apis.controller_spec import Task
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReservedKey, ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.logging.constants import is_log_streaming_allowed

from blindbayes_engines import records

TASK, TOPIC = "blindbayes_carry", "blindbayes.frames"
_REPLY, _PING, _IDLE, _AGENT = 5.0, 1.0, 10.0, 10.0  # seconds
_AGAIN = (0.05, 0.5, 1.0)  # seconds after which a message that was not answered is repeated, and the site is down
_BATCH_BYTES = 1 << 20


class _Peer(threading.Thread):
    """The way to one site: a queue, and one message under way."""

    def __init__(self, carry: Carry, name: str) -> None:
        super().__init__(name=f"blindbayes to {name}", daemon=True)
        self._carry, self._site = carry, name
        self.queue: queue.Queue[bytes | None] = queue.Queue()
        self._life, self._number = os.urandom(16), 0  # of this thread, told to that site alone
        self._up = False

    def run(self) -> None:
        while not self._carry.ended.is_set():
            frames = self._gather()
            arrived = self._deliver(frames)
            if arrived != self._up:
                self._up = arrived
                self._carry.tell(records.UP if arrived else records.DOWN, self._site)
            if frames:
                self._carry.tell(records.TAKEN, self._site, records.taken(len(frames)))

    def renew(self) -> None:
        """Another agent process listens: it has to hear that this site is up."""
        self._up = False
        self.queue.put(None)

    def _gather(self) -> list[bytes]:
        """Return the waiting records, at most a batch; none, for a ping, after a while without records."""
        frames: list[bytes] = []
        try:
            frame = self.queue.get(timeout=_IDLE) if self._up else self.queue.get_nowait()
            while True:
                if frame is not None:
                    frames.append(frame)
                if sum(map(len, frames)) >= _BATCH_BYTES:
                    return frames
                frame = self.queue.get_nowait()
        except queue.Empty:
            return frames

    def _deliver(self, frames: list[bytes]) -> bool:
        """Whether the site has them. A message that was not answered is repeated with its number, and taken once."""
        number, self._number = self._number, self._number + 1
        for pause in _AGAIN if self._up else (_PING,):
            with contextlib.suppress(Exception):  # its calls do not raise; if one does, this thread goes on
                if self._ask(frames, number):
                    return True
            self._carry.ended.wait(pause)
        return False

    def _ask(self, frames: list[bytes], number: int) -> bool:
        message = Shareable()
        message["frames"], message["life"], message["number"] = records.join(frames), self._life, number
        engine = self._carry.engine
        with engine.new_context() as context:
            answers = engine.send_aux_request(
                targets=[self._site], topic=TOPIC, request=message, timeout=_REPLY, fl_ctx=context, optional=True
            )
        answer = answers.get(self._site) if isinstance(answers, dict) else None
        return isinstance(answer, Shareable) and answer.get_return_code() == ReturnCode.OK


class Carry(Executor):
    """At a site. Lasts as long as the job, over as many runs and restarts of the agent as there are."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: Any = None
        self.ended = threading.Event()
        self._me = ""
        self._agent: records.Agent | None = None
        self._peers: dict[str, _Peer] = {}
        self._last: dict[str, tuple[bytes, int]] = {}  # by the name that the sender gave
        self._lock = threading.Lock()

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        if event_type == EventType.START_RUN:
            self._me, self.engine = fl_ctx.get_identity_name(), fl_ctx.get_engine()
            self.engine.register_aux_message_handler(TOPIC, self._arrived)
        elif event_type in (EventType.ABORT_TASK, EventType.END_RUN):
            self.ended.set()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: Any, abort_signal: Any) -> Shareable:
        if task_name != TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        if is_log_streaming_allowed(fl_ctx):
            self.log_error(fl_ctx, "nothing is carried: set allow_log_streaming to false in local/resources.json of this site")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        self._peers = {name: _Peer(self, name) for name in sorted(client.name for client in self.engine.get_clients())}
        self._peers.pop(self._me, None)
        for peer in self._peers.values():
            peer.start()
        try:
            while not (abort_signal.triggered or self.ended.is_set()):
                try:
                    agent = records.Agent("stream", _AGENT)
                except (OSError, records.Broken):
                    self.ended.wait(_PING)  # the agent does not run, or not yet
                    continue
                self._serve(agent, abort_signal)
        finally:
            self.ended.set()
        return make_reply(ReturnCode.OK)

    def _serve(self, agent: records.Agent, abort_signal: Any) -> None:
        self._agent = agent
        for peer in self._peers.values():
            peer.renew()
        try:
            for record in agent.records(until=0.5):
                if abort_signal.triggered or self.ended.is_set():
                    return
                if record is not None and record[0] == records.FRAME and record[1] in self._peers:
                    self._peers[record[1]].queue.put(record[2])
        except (OSError, UnicodeDecodeError, records.Broken):
            pass  # it went away, or is no agent
        finally:
            self._agent = None
            agent.close()

    def tell(self, kind: int, site: str, body: bytes = b"") -> bool:
        """Send a record to the agent, if there is one."""
        agent = self._agent
        try:
            if agent is not None:
                agent.write(kind, site, body)
            return agent is not None
        except OSError:
            return False

    def _arrived(self, topic: str, request: Shareable, fl_ctx: Any) -> Shareable:
        """Handle a message on one of FLARE's threads; foreign messages are answered and dropped."""
        try:
            sender = request.get_peer_props()[ReservedKey.IDENTITY_NAME]
            life, number, frames = request["life"], request["number"], records.split(request["frames"])
            if not (isinstance(sender, str) and sender in self._peers and type(life) is bytes and type(number) is int):
                return make_reply(ReturnCode.BAD_REQUEST_DATA)
        except Exception:  # whatever it was, its text stays here
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        with self._lock:
            before = self._last.get(sender, (b"", -1))
            if before[0] == life and number <= before[1]:
                return make_reply(ReturnCode.OK)  # it was given up, and comes after its successor
            self._last[sender] = (life[:16], number)
            if all(self.tell(records.FRAME, sender, frame) for frame in frames) and self._agent is not None:
                return make_reply(ReturnCode.OK)
        return make_reply(ReturnCode.SERVICE_UNAVAILABLE)


class Wait(Controller):
    """At the server: one task for all sites of the job, for `seconds` or until the job is aborted. It sees names."""

    def __init__(self, seconds: int = 86400) -> None:
        super().__init__()
        self._seconds = seconds

    def start_controller(self, fl_ctx: Any) -> None:
        pass

    def stop_controller(self, fl_ctx: Any) -> None:
        pass

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        sites = len(fl_ctx.get_engine().get_clients())
        task = Task(name=TASK, data=Shareable(), timeout=self._seconds)
        self.broadcast_and_wait(task=task, fl_ctx=fl_ctx, min_responses=sites, abort_signal=abort_signal)

    def process_result_of_unknown_task(self, *args: Any, **options: Any) -> None:
        pass
