"""Who learned what: per party, every kind of message it received, what it holds with it, and what was opened to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blindbayes.runtime.transcript import Entry
from blindbayes.wire import Message, Trust

TRUST_WORDS = {
    Trust.CLEAR: "readable, and meant to be: public facts of the run or its result",
    Trust.MASKED: "uniformly random to the reader as long as the masks stay on",
    Trust.ENCRYPTED: "ciphertext; the reader cannot open it, or opens only what is sealed to it",
    Trust.SHARE: "one share of a secret: says nothing without the others",
    Trust.NOISY: "carries differential privacy noise",
    Trust.KEY: "keys, commitments, signatures, tags: no data in them",
}

LABEL_WORDS = {
    "sum": "the exact sum of the parties' statistics, as pooled training would have it",
    "noisy_sum": "the sum of the parties' statistics with differential privacy noise",
    "class": "the class of each instance that was asked for",
    "noisy_histograms": "value by class counts with differential privacy noise",
}


@dataclass(frozen=True, slots=True)
class Received:
    """One kind of message that a party was handed."""

    kind: str
    trust: str
    count: int
    words: str


@dataclass(frozen=True, slots=True)
class PartyView:
    """All that one party got."""

    party: str
    received: tuple[Received, ...]
    opened: tuple[str, ...]

    @property
    def plain(self) -> tuple[str, ...]:
        """What the party learned, one sentence each."""
        sentences = []
        for label, times in Counter(self.opened).items():
            often = "" if times == 1 else f" ({times} times)"
            sentences.append(f"It learned {LABEL_WORDS.get(label, label.replace('_', ' '))}{often}.")
        if not self.opened:
            sentences.append("Nothing was opened to it.")
        for trust in Trust:
            count = sum(item.count for item in self.received if item.trust == trust.value)
            if count and trust is not Trust.KEY:
                sentences.append(f"It received {count} {trust.value} message{'s' * (count != 1)}: {TRUST_WORDS[trust]}.")
        return tuple(sentences)


@dataclass(frozen=True, slots=True)
class Flow:
    """A row of the sequence diagram: messages of one kind at one depth, between two groups of parties."""

    depth: int
    kind: str
    trust: str
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LeakReport:
    """The whole run."""

    protocol: str
    contributors: int
    views: tuple[PartyView, ...]
    flows: tuple[Flow, ...]
    assumptions: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain builtins, for leakage.json."""
        return {
            "protocol": self.protocol,
            "contributors": self.contributors,
            "assumptions": list(self.assumptions),
            "parties": {
                view.party: {
                    "opened": list(view.opened),
                    "received": {item.kind: [item.trust, item.count] for item in view.received},
                    "in plain words": list(view.plain),
                }
                for view in self.views
            },
        }


def leak_report(
    protocol: str,
    contributors: int,
    received: Mapping[str, Mapping[type[Message], int]],
    opened: Mapping[str, Sequence[str]],
    entries: Iterable[Entry],
    assumptions: Sequence[str] = (),
) -> LeakReport:
    """From what a driver recorded."""
    views = []
    for party, kinds in received.items():
        items = tuple(Received(kind.__name__, kind.trust.value, count, _words(kind)) for kind, count in kinds.items())
        views.append(PartyView(party, items, tuple(opened.get(party, ()))))
    return LeakReport(protocol, contributors, tuple(views), _flows(entries), tuple(assumptions))


def _words(kind: type[Message]) -> str:
    """What the message is: the first line of its docstring."""
    return " ".join((kind.__doc__ or kind.__name__).strip().split("\n\n")[0].split())


def _flows(entries: Iterable[Entry]) -> tuple[Flow, ...]:
    grouped: dict[tuple[int, str], list[Entry]] = {}
    for entry in entries:
        grouped.setdefault((entry.depth, entry.kind.__name__), []).append(entry)
    flows = []
    for (depth, kind), group in sorted(grouped.items(), key=lambda item: (item[0][0], item[1][0].index)):
        senders = tuple(dict.fromkeys(entry.sender for entry in group))
        receivers = tuple(dict.fromkeys(entry.to for entry in group))
        size = sum(entry.size for entry in group)
        flows.append(Flow(depth, kind, group[0].trust.value, senders, receivers, len(group), size))
    return tuple(flows)
