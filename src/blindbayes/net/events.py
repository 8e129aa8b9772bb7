"""The agent's log: named events with who, which run and counts, never a text or a value that could come from a row.

Event names are a closed list. The facts of an event are a run id, a site's name, the class of an error, the hash of a study,
and whole numbers; anything of another form is replaced by its type. In JSON output, one object per line on standard error,
everything that a library or other code logs is reduced to the logger's name, because its text may quote values.
"""

from __future__ import annotations

import json
import logging
import re
import time
from typing import Literal, TextIO

from blindbayes.io.chain import is_rehearsal

log = logging.getLogger("blindbayes.events")

Event = Literal[
    "agent_started",
    "agent_stopped",
    "agent_reloaded",
    "site_up",
    "site_down",
    "dialling_failed",
    "wrong_certificate",
    "certificate_refused",
    "offer_refused",
    "study_proposed",
    "study_invited",
    "decision_heard",
    "notice_refused",
    "notification_failed",
    "prediction_proposed",
    "run_joined",
    "run_resumed",
    "run_burned",
    "run_computing",
    "run_opened",
    "run_done",
    "run_failed",
    "run_stopped",
    "relay_started",
    "relay_stopped",
    "carrier_refused",
]

_RUN = re.compile("[0-9a-f]{16,64}")
_HASH = re.compile("[0-9a-f]{64}")
_SITE = re.compile("[a-z0-9][a-z0-9-]{0,39}")
_ERROR = re.compile("[A-Za-z]{1,40}")


def log_event(
    event: Event,
    *,
    level: int = logging.INFO,
    run: str | None = None,
    site: str | None = None,
    study: str | None = None,
    error: BaseException | None = None,
    **counts: int,
) -> None:
    """Log one event. A field of the wrong form is replaced by its type."""
    if not log.isEnabledFor(level) or is_rehearsal():
        return
    facts: dict[str, str | int] = {}
    named = (("run", run, _RUN), ("site", site, _SITE), ("study", study, _HASH))
    for name, text, form in (*named, ("error", None if error is None else type(error).__name__, _ERROR)):
        if text is not None:
            facts[name] = text if form.fullmatch(text) else f"<{type(text).__name__}>"
    for name, number in counts.items():
        facts[name] = number if type(number) is int else f"<{type(number).__name__}>"
    text = " ".join([event, *(f"{name}={value}" for name, value in facts.items())])
    log.log(level, text, extra={"event": event, "facts": facts})


class JsonLines(logging.Formatter):
    """A formatter of one JSON object per record; records that are no event show only their logger."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {"time": f"{stamp}.{int(record.msecs):03d}Z", "level": record.levelname.lower()}
        if record.name == log.name and hasattr(record, "event") and hasattr(record, "facts"):
            return json.dumps({**line, "event": record.event, **record.facts})
        return json.dumps({**line, "event": "other", "logger": record.name})


def log_json(stream: TextIO | None = None) -> None:
    """Write everything that this process logs to `stream` (standard error) as JSON lines from now on."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logging.getLogger().handlers = [handler]  # the root: what asyncio and other libraries log quotes values
    logging.captureWarnings(True)
    ours = logging.getLogger("blindbayes")
    ours.handlers, ours.propagate = [], True
    ours.setLevel(min(ours.getEffectiveLevel(), logging.INFO))
