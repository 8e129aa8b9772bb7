"""Notifications of decisions that wait: what a message holds, verified TLS, few attempts, and nothing that blocks."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer
from typing import Any

import msgspec
import pytest

from blindbayes.agent.config import Notify
from blindbayes.agent.notify import Notifier, Waiting
from blindbayes.agent.store.inbox import store_study
from blindbayes.errors import ConfigError
from blindbayes.net.identity import Identity
from support.sites import BOOK, Office, bounded

WAITING = Waiting.make("south", "study", "Read\nmission \x1b[31m", "north", "http://127.0.0.1:7441/studies/1")


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


class Hook:
    """A webhook on this machine."""

    def __init__(self, status: int = 200, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, str]]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.requests.append((self.path, dict(self.headers), body))
                self.send_response(status)
                self.send_header("Location", "http://elsewhere.example/")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def url(self, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.server.server_address[1]}/hook?x=1"


@pytest.fixture
def notifiers(tmp_path: Path) -> Iterator[Callable[..., Notifier]]:
    made: list[Notifier] = []

    def make(**fields: Any) -> Notifier:
        made.append(Notifier(Notify(**fields), tmp_path, pause=lambda _: False))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_webhook_gets_title_party_and_link_and_nothing_else(notifiers: Callable[..., Notifier]) -> None:
    hook = Hook()
    notifiers(webhook=hook.url(), webhook_token="secret").notify(WAITING)
    until(lambda: hook.requests)
    path, headers, body = hook.requests[0]
    assert path == "/hook?x=1"
    assert headers["Authorization"] == "Bearer secret"
    assert set(body) == {"site", "what", "title", "party", "link", "text"}
    assert body["party"] == "north"
    assert "\n" not in body["title"]
    assert "\x1b" not in body["text"]


@pytest.mark.parametrize("status", [302, 500])
def test_a_failure_is_tried_three_times_logged_once_and_blocks_nobody(
    notifiers: Callable[..., Notifier], caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.INFO, "blindbayes.events")
    hook = Hook(status)
    notifier = notifiers(webhook=hook.url())
    for _ in range(3):
        notifier.notify(WAITING)
    until(lambda: len(hook.requests) == 9)  # a redirect is not followed
    until(lambda: notifier._queue.empty() and "notification_failed" in caplog.text)
    notifier.close(5)
    assert caplog.text.count("notification_failed") == 1
    for _ in range(1000):  # more than the queue holds: a call that waited for room would never return
        notifier.notify(WAITING)
    assert len(hook.requests) == 9


def test_a_certificate_that_nobody_vouches_for_gets_no_message(
    tmp_path: Path, notifiers: Callable[..., Notifier], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "blindbayes.events")
    identity = Identity.generate("hook")
    (tmp_path / "key.pem").write_bytes(identity.tls_key)
    (tmp_path / "cert.pem").write_bytes(identity.card.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    hook = Hook(context=context)
    notifiers(webhook=hook.url("https")).notify(WAITING)
    until(lambda: "notification_failed" in caplog.text)
    # certified, and for another name
    caplog.clear()
    notifiers(webhook=hook.url("https"), authority="cert.pem").notify(WAITING)
    until(lambda: "notification_failed" in caplog.text)
    assert hook.requests == []


class Mail(StreamRequestHandler):
    received: list[str] = []
    offers_tls = False

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline().decode():
            word = line.split()[0].upper()
            if word == "EHLO":
                self.wfile.write(b"250-here\r\n250 8BITMIME\r\n")
            elif word == "DATA":
                self.wfile.write(b"354 go\r\n")
                text = ""
                while (more := self.rfile.readline().decode()) != ".\r\n":
                    text += more
                self.received.append(text)
                self.wfile.write(b"250 ok\r\n")
            elif word == "QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            else:
                self.wfile.write(b"250 ok\r\n" if word != "STARTTLS" else b"502 no\r\n")


@pytest.fixture
def mail() -> Iterator[str]:
    Mail.received = []
    with TCPServer(("127.0.0.1", 0), Mail) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_an_e_mail_has_the_same_words(notifiers: Callable[..., Notifier], mail: str) -> None:
    addresses = {"mail_from": "agent@south.example", "mail_to": ("ada@south.example", "ben@south.example")}
    notifiers(smtp=mail, smtp_tls="none", **addresses).notify(WAITING)
    until(lambda: Mail.received)
    text = Mail.received[0]
    assert "Subject: south: a study waits for a decision" in text
    assert "To: ada@south.example, ben@south.example" in text
    assert "http://127.0.0.1:7441/studies/1" in text


def test_a_mail_server_without_tls_gets_no_message(
    notifiers: Callable[..., Notifier], mail: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "blindbayes.events")
    notifiers(smtp=mail, mail_from="a@b.example", mail_to=("c@d.example",)).notify(WAITING)
    until(lambda: "notification_failed" in caplog.text)
    assert Mail.received == []


@pytest.mark.parametrize(
    "fields",
    [
        {"webhook": "http://chat.example/hook"},
        {"webhook": "https://user:secret@chat.example/"},
        {"webhook": "ftp://127.0.0.1/"},
        {"webhook": "https://chat.example/a b"},
        {"webhook": "https://chat.example:0/"},
        {"webhook": "no address"},
        {"smtp": "mail.example:587"},
        {"smtp": "mail.example:587", "mail_from": "a@b.example", "mail_to": ("c@d.example\r\nBcc: e@f.example",)},
        {"smtp": "mail.example:25", "smtp_tls": "none", "mail_from": "a@b.example", "mail_to": ("c@d.example",)},
        {"timeout": 0},
    ],
)
def test_settings_that_would_send_in_clear_or_nowhere_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="notify"):
        Notify(**fields)
    assert "secret" not in repr(Notify(smtp_password="secret"))


def test_an_invitation_notifies_staff_and_a_dead_webhook_delays_no_run(tmp_path: Path) -> None:
    hook = Hook()

    async def test() -> None:
        office = Office(tmp_path, ("north", "south", "west"))
        for name, url in (("south", hook.url()), ("west", "http://127.0.0.1:9/")):
            home = office.net.sites[name].home
            home.config = msgspec.structs.replace(home.config, notify=Notify(webhook=url, console="https://console.example/"))
        async with office:
            study, north = office.net.make_study(BOOK, title="Readmission"), office.agents["north"]
            store_study(north.home, study)
            north.notices.invite(study, "Ada")
            while len(hook.requests) < 1:
                await asyncio.sleep(0.01)
            body = hook.requests[0][2]
            assert (body["title"], body["party"]) == ("Readmission", "north")
            assert body["link"] == f"https://console.example/studies/{study.sha256}"
            assert "colour" not in json.dumps(body)
            office.net.approve(study)
            assert {run.state for run in (await office.run(study)).values()} == {"done"}
        assert len(hook.requests) == 1

    bounded(test, wall=True)  # the webhook answers in threads of its own
