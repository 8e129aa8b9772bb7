"""Notification of staff when a decision waits, by a webhook or by e-mail (`[notify]` in site.toml; off by default).

A message holds the site, the kind of decision, the study's title, the party it came from and a link, and nothing else of the
study. It is sent from a thread of its own with deadlines and few attempts: a mail server that does not answer delays no run.
A failure is logged once until a message succeeds.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import queue
import smtplib
import ssl
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from email.message import EmailMessage
from pathlib import Path
from urllib.parse import urlsplit

from blindbayes.agent.config import Notify
from blindbayes.io.untrusted import shown
from blindbayes.net.events import log_event

_MAX_QUEUED = 64
_MAX_TITLE = 200
_ATTEMPTS = 3
_HELO = "[127.0.0.1]"  # the name of this machine is nobody's business
_PAUSES = (2.0, 10.0)  # seconds between attempts


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pending decision, of which staff are notified."""

    site: str
    what: str  # "study", "prediction"
    title: str  # untrusted: escaped and cut here
    party: str  # who asks; empty: brought by this site's own staff
    link: str

    @classmethod
    def make(cls, site: str, what: str, title: str, party: str, link: str) -> Waiting:
        return cls(site, what, " ".join(shown(title).split())[:_MAX_TITLE], party, link)

    @property
    def subject(self) -> str:
        return f"{self.site}: {'a study' if self.what == 'study' else 'a request to classify'} waits for a decision"

    @property
    def text(self) -> str:
        by = f" from {self.party}" if self.party else ""
        return f"{self.subject}.\n\n{self.title}{by}\n{self.link}\n"


class Notifier:
    """A thread that sends what `notify` was given, one at a time."""

    def __init__(self, config: Notify, folder: Path, *, pause: Callable[[float], bool] | None = None) -> None:
        self._config, self._folder = config, folder
        self._queue: queue.Queue[Waiting | None] = queue.Queue(_MAX_QUEUED)
        self._ending = threading.Event()
        self._pause = pause or self._ending.wait
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="notifications", daemon=True)
        self._thread.start()

    def notify(self, waiting: Waiting) -> None:
        """Send a message soon; dropped if too many wait."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(waiting)

    def close(self, seconds: float = 0.5) -> None:
        self._ending.set()
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (waiting := self._queue.get()) is not None and not self._ending.is_set():
            for send, wanted in ((self._post, self._config.webhook), (self._mail, self._config.smtp)):
                if wanted is not None:
                    self._try(send, waiting)

    def _try(self, send: Callable[[Waiting], None], waiting: Waiting) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                send(waiting)
                self._failed = False
                return
            except (OSError, http.client.HTTPException, smtplib.SMTPException, ValueError) as error:
                last: Exception = error
            if attempt < len(_PAUSES) and self._pause(_PAUSES[attempt]):
                return
        if not self._failed:
            self._failed = True
            log_event("notification_failed", level=logging.WARNING, error=last, tries=_ATTEMPTS)

    def _post(self, waiting: Waiting) -> None:
        parts = urlsplit(self._config.webhook or "")
        timeout, host = self._config.timeout, parts.hostname or ""
        connection = (
            http.client.HTTPSConnection(host, parts.port, timeout=timeout, context=self._tls())
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, parts.port, timeout=timeout)
        )
        body = json.dumps({"text": waiting.text, **asdict(waiting)}).encode()
        headers = {"Content-Type": "application/json"}
        if self._config.webhook_token is not None:
            headers["Authorization"] = f"Bearer {self._config.webhook_token}"
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read(4096)
            if not 200 <= answer.status < 300:  # a redirect is not followed: it could lead anywhere
                raise OSError(f"the webhook answered {answer.status}")
        finally:
            connection.close()

    def _mail(self, waiting: Waiting) -> None:
        config = self._config
        host, _, port = (config.smtp or "").rpartition(":")
        message = EmailMessage()
        message["Subject"], message["From"], message["To"] = waiting.subject, config.mail_from, ", ".join(config.mail_to)
        message.set_content(waiting.text)
        with self._server(host.strip("[]"), int(port)) as server:
            if config.smtp_tls == "starttls":
                server.starttls(context=self._tls())
            if config.smtp_password is not None:
                server.login(config.smtp_user or config.mail_from or "", config.smtp_password)
            server.send_message(message)

    def _server(self, host: str, port: int) -> smtplib.SMTP:
        timeout = self._config.timeout
        if self._config.smtp_tls == "tls":
            return smtplib.SMTP_SSL(host, port, _HELO, timeout=timeout, context=self._tls())
        return smtplib.SMTP(host, port, _HELO, timeout=timeout)

    def _tls(self) -> ssl.SSLContext:
        """Return a context that verifies certificate and name, by the system's authorities or by the site's own file."""
        own = self._config.authority
        return ssl.create_default_context(cafile=None if own is None else str(self._folder / own))
