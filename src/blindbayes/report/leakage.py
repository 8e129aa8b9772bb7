"""The leak report: for each party, every kind of message that it received, and what was opened to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from blindbayes.protocols.registry import Coalition, SumSetup, coalition_of
from blindbayes.report.spec import Spec, added_labels, read_spec
from blindbayes.wire import Message, Trust
from blindbayes.wire.transcript import Amount, SentMessage, Way

TRUST_WORDS = {
    Trust.CLEAR: "readable, as intended: public facts of the run, or its result",
    Trust.MASKED: "uniformly random to the receiver as long as the masks stay on",
    Trust.ENCRYPTED: "ciphertext; the receiver can decrypt at most what is addressed to it",
    Trust.SHARE: "one share of a secret, which reveals nothing without the other shares",
    Trust.NOISY: "carries differential privacy noise",
    Trust.KEY: "keys, commitments, signatures and tags, without data",
}

LABEL_WORDS = {
    "sum": "the exact sum of the parties' statistics, as pooled training would have it",
    "floored_sum": "the cells of the exact sum that are 0 or reach the floor; the others are suppressed",
    "noisy_sum": "the sum of the parties' statistics with differential privacy noise",
    "persons_by_sites": "how many persons each site has, and how many are at which sites together, by their pseudonyms",
    "class": "the class of each requested instance",
    "class_totals": "how many instances have each true and each predicted class",
    "audited_classes": "the classes of instances that it made up, against which later answers are checked",
    "vectors": "every contributor's own statistics, in clear",
    "noisy_overlap": "an estimate of how many identifiers joined, with differential privacy noise of both parties",
    "enough_overlap": "whether at least the agreed number of identifiers joined (one bit)",
    "matching": "which of its identifiers the other party has too",
    "shared_identifiers": "which of its identifiers the other party has too, since only those were given a class",
}


def describe_label(label: str) -> str:
    """Return a description of what is opened under a label."""
    return LABEL_WORDS.get(label) or added_labels().get(label) or label.replace("_", " ")


OTHERS = "other parties"


@dataclass(frozen=True, slots=True)
class ReceivedKind:
    """One kind of message that a party received."""

    kind: str
    trust: str
    count: int
    words: str


@dataclass(frozen=True, slots=True)
class About:
    """The facts of a run that are known where the report is written."""

    title: str = ""
    study: str = ""  # its hash
    run: str = ""
    date: str = ""
    parties: tuple[str, ...] = ()
    holds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # in a study over columns: party -> its columns
    hosts: Mapping[str, str] = field(default_factory=dict)  # role -> the party that hosts it

    def role(self, name: str) -> str:
        """Return the name of a role, with the party that hosts it."""
        return f"{name} (run by {self.hosts[name]})" if name in self.hosts else name

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        facts = {
            "study": self.title,
            "sha256 of the study": self.study,
            "run": self.run,
            "date": self.date,
            "parties": ", ".join(self.parties),
        }
        return tuple((name, value) for name, value in facts.items() if value)


@dataclass(frozen=True, slots=True)
class PartyView:
    """All that one party received; for the other party of two, only what this site sent it (`whole` is False)."""

    party: str
    received: tuple[ReceivedKind, ...]
    opened: tuple[str, ...]
    whole: bool = True

    @property
    def plain(self) -> tuple[str, ...]:
        """Sentences about what the party learned."""
        sentences = []
        if not self.whole:
            sentences.append("Its own release lists what was opened to it.")
            sentences += self._kinds("It was sent")
            return tuple(sentences)
        for label, times in Counter(self.opened).items():
            often = "" if times == 1 else f" ({times} times)"
            sentences.append(f"It learned {describe_label(label)}{often}.")
        if not self.opened:
            sentences.append("Nothing was opened to it.")
        return (*sentences, *self._kinds("It received"))

    def _kinds(self, verb: str) -> list[str]:
        sentences = []
        for trust in Trust:
            count = sum(item.count for item in self.received if item.trust == trust.value)
            if count and trust is not Trust.KEY:
                sentences.append(f"{verb} {count} {trust.value} message{'s' * (count != 1)}: {TRUST_WORDS[trust]}.")
        return sentences


@dataclass(frozen=True, slots=True)
class Flow:
    """A row of the sequence diagram: messages of one kind at one depth."""

    depth: int
    kind: str
    trust: str
    pairs: tuple[tuple[str, str], ...]  # sender, receiver
    count: int
    bytes: int  # 0: unknown


@dataclass(frozen=True, slots=True)
class LeakReport:
    """The leak report of one run."""

    protocols: tuple[str, ...]
    contributors: int
    views: tuple[PartyView, ...]
    flows: tuple[Flow, ...]
    follows: tuple[str, ...] = ()  # conclusions at this number of parties
    about: About = About()
    one_site: bool = False  # made by a site, which sees only its own messages

    @property
    def protocol(self) -> str:
        return ", ".join(self.protocols)

    @property
    def specs(self) -> tuple[Spec, ...]:
        return tuple(read_spec(name) for name in self.protocols)

    @property
    def allowed(self) -> tuple[str, ...]:
        """Labels that the SPECs of the protocols allow a run to open."""
        named = [
            label for spec in self.specs for key, labels in spec.table.items() if key.startswith("opened") for label in labels
        ]
        return tuple(dict.fromkeys(["noisy_sum" if label == "sum" and self._noisy else label for label in named]))

    @property
    def _noisy(self) -> bool:
        return any("noisy_sum" in view.opened for view in self.views)

    @property
    def unforeseen(self) -> tuple[str, ...]:
        """Labels that were opened and are in no SPEC: a fault of the software."""
        if not self.protocols:
            return ()
        return tuple(sorted({label for view in self.views for label in view.opened} - set(self.allowed)))

    def _repr_html_(self) -> str:
        rows = ((escape(view.party), "<br>".join(map(escape, view.plain))) for view in self.views)
        lines = "".join(f"<tr><td>{who}</td><td style='text-align:left'>{learned}</td></tr>" for who, learned in rows)
        follows = "".join(f"<li>{escape(line)}</li>" for line in self.follows)
        return f"<table><tr><th>party</th><th>learns</th></tr>{lines}</table><ul>{follows}</ul>"

    def to_dict(self) -> dict[str, Any]:
        """Return plain builtins, for leakage.json."""
        return {
            "format": "blindbayes.leakage/1",
            "about": dict(self.about.lines),
            "protocols": list(self.protocols),
            "contributors": self.contributors,
            "may be opened": list(self.allowed),
            "unforeseen": list(self.unforeseen),
            "follows": list(self.follows),
            "parties": {
                view.party: {
                    "opened": list(view.opened),
                    "received": {item.kind: [item.trust, item.count] for item in view.received},
                    "in plain words": list(view.plain),
                }
                for view in self.views
                if view.whole
            },
        }


def leak_report(
    protocols: Sequence[str],
    contributors: int,
    received: Mapping[str, Mapping[type[Message], int]],
    opened: Mapping[str, Sequence[str]],
    entries: Iterable[SentMessage],
    follows: Sequence[str] = (),
    traffic: Mapping[Way, Amount] | None = None,
    about: About | None = None,
) -> LeakReport:
    """Make the report of a run. A site, which sees only its own messages, passes `traffic` in place of `entries`."""
    noisy = any("noisy_sum" in labels for labels in opened.values())

    def items(kinds: Mapping[type[Message], int]) -> tuple[ReceivedKind, ...]:
        what = {kind: " ".join((kind.__doc__ or kind.__name__).strip().split("\n\n")[0].split()) for kind in kinds}
        return tuple(ReceivedKind(kind.__name__, _trust(kind, noisy), n, what[kind]) for kind, n in kinds.items())

    views = [PartyView(party, items(kinds), tuple(opened.get(party, ()))) for party, kinds in received.items()]
    names = {name for sender, to, _ in traffic or () for name in (sender, to)}
    if traffic and len(names) == 2:  # with two parties, the other receives messages of this one only
        for other in sorted(names - set(received)):
            sent = {kind: count for (_, to, kind), (count, _) in traffic.items() if to == other}
            views.append(PartyView(other, items(sent), (), whole=False))
    flows = _flows(entries, noisy) or _traffic_flows(traffic or {}, noisy) or _arrivals(views)
    return LeakReport(
        tuple(protocols), contributors, tuple(views), flows, tuple(follows), about or About(), one_site=bool(traffic)
    )


def follows_from_sum(protocol: str, setting: SumSetup, included: int) -> tuple[str, ...]:
    """Return what follows from a sum of this number of parties, and the size of a coalition that the protocol withstands."""
    lines = list(coalition_sentences(protocol, coalition_of(protocol, setting), len(setting.contributors)))
    if setting.noisy:
        lines.append("What follows from the opened sum itself is bounded by the privacy statement of this release.")
    else:
        lines.append(
            f"The sum of {included} contributors is exact. A contributor that knows it knows the sum of the other "
            f"{included - 1}; {included - 1} of them together know the statistics of the last one, under any protocol."
        )
        lines.append("A cell of the sum that counts one person reveals to the others that such a person exists.")
        lines.append(
            "An honest site's table takes part in exact sums over these contributors only: no other exact sum reveals "
            "the difference. Sums over other contributors carry noise; noise calibrated to one record hides a whole site's "
            "statistics only up to a few rows."
        )
    return tuple(lines)


def coalition_sentences(protocol: str, coalition: Coalition | None, contributors: int) -> tuple[str, ...]:
    """Describe the coalitions that a protocol for rows withstands."""
    if coalition is None:
        return (f"The protocol {protocol} claims to protect nothing: assume that others see every contributor's statistics.",)
    lines = []
    if coalition.active < coalition.passive:
        lines.append(
            _coalition(coalition.reader, coalition.passive, contributors, "follow the protocol and pool what they saw")
        )
    if coalition.active >= 0:
        doing, even = "may deviate and pool what they saw", "even if it deviates,"
        lines.append(_coalition(coalition.reader, coalition.active, contributors, doing, even, parts=coalition.parts))
    else:
        lines.append("Nothing is claimed against parties that deviate from the protocol.")
    if coalition.trusted:
        role = f"{coalition.trusted[0].upper()}{coalition.trusted[1:]}"
        lines.append(f"{role} is not among them: together with {coalition.reader} it reads every contribution.")
    return tuple(lines)


def _coalition(reader: str, size: int, contributors: int, doing: str, even: str = "", *, parts: bool = False) -> str:
    if size >= contributors - 1:
        crowd = "any number of contributors"
    elif size <= 0:
        crowd = ""
    else:
        crowd = f"up to {size} contributor{'s' * (size != 1)}"
    if not reader:
        crowd = "" if size == 1 else crowd
        subject = (
            f"{crowd[0].upper()}{crowd[1:]} that {doing} learn"
            if crowd
            else f"A contributor alone{', ' * bool(even)}{even} learns"
        )
    else:
        alone = f"{reader[0].upper()}{reader[1:]},"
        subject = f"{alone} {even} together with {crowd} that {doing}, learns" if crowd else f"{alone} {even} alone, learns"
    learned = "the sum of the other contributors' statistics"
    if parts:
        learned = "sums over parts of the other contributors, each at least what is left of a neighbourhood of the graph,"
    return " ".join(f"{subject} {learned} and nothing else about them.".split())


def _trust(kind: type[Message], noisy: bool) -> str:
    """Return the trust of a message. A total that was opened with noise is noisy in transit too."""
    if noisy and kind.trust is Trust.CLEAR and "total" in kind.__struct_fields__:
        return Trust.NOISY.value
    return kind.trust.value


def _flows(entries: Iterable[SentMessage], noisy: bool) -> tuple[Flow, ...]:
    grouped: dict[tuple[int, str], list[SentMessage]] = {}
    for entry in entries:
        grouped.setdefault((entry.depth, entry.kind.__name__), []).append(entry)
    flows = []
    for (depth, kind), group in sorted(grouped.items(), key=lambda item: (item[0][0], item[1][0].index)):
        pairs = tuple(dict.fromkeys((entry.sender, entry.to) for entry in group))
        flows.append(Flow(depth, kind, _trust(group[0].kind, noisy), pairs, len(group), sum(entry.size for entry in group)))
    return tuple(flows)


def _traffic_flows(traffic: Mapping[Way, Amount], noisy: bool) -> tuple[Flow, ...]:
    """Return one row per kind of message that a site sent or received, in order of first appearance."""
    grouped: dict[type[Message], list[tuple[tuple[str, str], Amount]]] = {}
    for (sender, to, kind), amount in traffic.items():
        grouped.setdefault(kind, []).append(((sender, to), amount))
    return tuple(
        Flow(
            depth,
            kind.__name__,
            _trust(kind, noisy),
            tuple(pair for pair, _ in ways),
            *map(sum, zip(*(a for _, a in ways), strict=True)),
        )
        for depth, (kind, ways) in enumerate(grouped.items())
    )


def _arrivals(views: Sequence[PartyView]) -> tuple[Flow, ...]:
    """Return one row per kind that each role received, in order of first arrival."""
    return tuple(
        Flow(depth, item.kind, item.trust, ((OTHERS, view.party),), item.count, 0)
        for view in views
        for depth, item in enumerate(view.received)
    )
