"""Flower 1.41: a mailman. The ServerApp hands each site its mail and takes what it has to send; a fresh process answers.

Each site has one message under way, so that a slow one holds up nobody else. No text of an exception leaves a site. Names are
what sites say of themselves; no agent believes them. A round takes seconds: only studies of few rounds run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from blindbayes_engines import records

_KIND, _RECORD = "blindbayes", "mail"
_PATIENCE = 60.0  # seconds that a site has for its turn
_POLL = 0.1  # seconds between looks for answers
_REST, _LONG_REST = 1.0, 8.0  # before a site without mail is asked again; longer each time, since a turn is a process there
_TOGETHER = 15.0  # the sites take their turns together, unless one takes longer: else most mail just misses its site

client_app = ClientApp()
server_app = ServerApp()


def silent() -> bool:
    """Whether this process was told to keep Flower's reports of usage at home."""
    return os.environ.get("FLWR_TELEMETRY_ENABLED", "1") == "0"


def _pairs(raw: object) -> Iterator[tuple[str, bytes]]:
    parts = records.split(raw)
    for name, frame in zip(parts[::2], parts[1::2], strict=True):
        yield name.decode(), frame


@client_app.query(_KIND)
def take_turn(message: Message, context: Context) -> Message:
    """At a site: mail in, mail out. Everything lasting is the agent's."""
    name, out = str(context.node_config.get("site", "")), b""
    try:
        if silent():
            out = _turn(message.content[_RECORD])
    except Exception:  # its text would travel to the server
        out = b""
    return Message(RecordDict({_RECORD: ConfigRecord({"site": name, "mail": out})}), reply_to=message)


def _turn(mail: ConfigRecord) -> bytes:
    agent, found = records.Agent("turns", _PATIENCE / 2), []
    try:
        for site in str(mail["sites"]).split():
            agent.write(records.UP, site)
        for sender, frame in _pairs(mail["mail"]):
            agent.write(records.FRAME, sender, frame)
        agent.write(records.TURN)
        for record in agent.records(until=_PATIENCE / 2):
            if record is None or record[0] != records.FRAME:
                break
            found += [record[1].encode(), record[2]]
    finally:
        agent.close()
    return records.join(found)


@server_app.main()
def carry(grid: Grid, context: Context) -> None:
    """At the server, for as many seconds as the app's configuration says, or until `flwr stop`."""
    if not silent():
        raise SystemExit("set FLWR_TELEMETRY_ENABLED=0 at the SuperLink and at every SuperNode")
    ends = time.monotonic() + float(context.run_config["seconds"])
    names: dict[int, str] = {}
    mail: dict[int, list[bytes]] = {}
    asked: dict[str, tuple[int, float]] = {}  # message under way: its node, and until when it is waited for
    rests: dict[int, tuple[float, float]] = {}  # until when, and for how long
    while (now := time.monotonic()) < ends:
        busy = {node for node, _ in asked.values()}
        due = [n for n in grid.get_node_ids() if n not in busy and (rests.get(n, (0.0,))[0] <= now or mail.get(n))]
        slow = [until for node, until in asked.values() if node in names and until - now > _PATIENCE - _TOGETHER]
        if due and not slow:
            messages = [_letter(node, names, mail) for node in due]
            for node, number in zip(due, grid.push_messages(messages), strict=True):
                if number:
                    asked[str(number)] = (node, now + _PATIENCE)
        for reply in grid.pull_messages(list(asked)):
            node, _ = asked.pop(reply.metadata.reply_to_message_id, (0, 0.0))
            if node and not reply.has_error():
                _sort(node, reply, names, mail, rests)
        for number in [number for number, (_, until) in asked.items() if until < now]:
            names.pop(asked.pop(number)[0], None)  # it is not there; its mail waits for it
        time.sleep(_POLL)


def _letter(node: int, names: dict[int, str], mail: dict[int, list[bytes]]) -> Message:
    letter = {"sites": " ".join(sorted(set(names.values()))), "mail": records.join(mail.pop(node, []))}
    return Message(RecordDict({_RECORD: ConfigRecord(letter)}), message_type=f"query.{_KIND}", dst_node_id=node, ttl=_PATIENCE)


def _sort(
    node: int, reply: Message, names: dict[int, str], mail: dict[int, list[bytes]], rests: dict[int, tuple[float, float]]
) -> None:
    """Return a site's answer: its name, and its messages by receiver."""
    try:
        site, letters = str(reply.content[_RECORD]["site"]), list(_pairs(reply.content[_RECORD]["mail"]))
    except Exception:  # no mail of ours
        return
    if not site or " " in site or names.get(node, site) != site:
        return
    names[node] = site
    for to, frame in letters:
        for other in [other for other, name in names.items() if name == to]:  # a name can be claimed twice: nobody is kept out
            waiting = mail.setdefault(other, [])
            if sum(map(len, waiting)) < records.MAX_MAIL_BYTES:
                waiting += [site.encode(), frame]
    rest = 0.0 if letters else min(2 * rests.get(node, (0.0, 0.0))[1] or _REST, _LONG_REST)
    rests[node] = (time.monotonic() + rest, rest)
