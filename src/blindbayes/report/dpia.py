"""The annex to a data protection impact assessment: answers from a release folder, and questions left to people.

Every statement names the fields of the folder that it is made from, as `file#/path` (a JSON Pointer), and contains what they
say: if a field changes, so does the statement; a missing field leaves it out. What the folder does not say is asked as
an empty field. Headings and questions say what the law asks; they claim nothing about the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from blindbayes.codebook.features import number_name
from blindbayes.errors import ConfigError, DataError
from blindbayes.io.untrusted import MAX_MODEL_BYTES, read_json_table, read_toml, well_formed
from blindbayes.report.cover_sheet import OFFICER, Cover
from blindbayes.report.leakage import describe_label
from blindbayes.report.manifest import AGAIN
from blindbayes.report.theme import render

FILES = (
    "run.json",
    "statement.json",
    "disclosure.json",
    "leakage.json",
    "cost.json",
    "cover.json",
    "evaluation.json",
    "signatures.json",
    "common.signatures.json",
    "receipts.json",
    "model.json",
    "study.toml",
)
COVER = "cover.toml"
FALSE_ALARM, BELIEF, GROUP = 0.01, 0.01, 10
_KINDS = {"categorical": "categories", "numeric": "a number", "text": "words of a text"}
_PRICE = ("statement.json#/epsilon", "statement.json#/delta", "statement.json#/unit")
_EPSILON = "disclosure.json#/risk_appetite/epsilon"
_PARTIES = "study.toml#/parties"
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence about the release, and the fields that it is made from."""

    text: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """Return a field to fill in, for facts that the folder lacks."""

    name: str
    hint: str


@dataclass(slots=True)
class Section:
    """One question of the assessment: what is asked, the answers, and what is left open."""

    title: str
    asks: str
    answers: list[Statement | Question] = field(default_factory=list)


def read_documents(files: Mapping[str, bytes], cover: Cover | None = None) -> dict[str, Any]:
    """Parse the files of a release that the annex is made from; `cover` adds the officer's answers."""
    documents: dict[str, Any] = {}
    for name in FILES:
        if name not in files:
            continue
        if name.endswith(".toml"):
            documents[name] = read_toml(files[name], name, error=DataError, hint=AGAIN)
        else:
            documents[name] = read_json_table(files[name], name, max_bytes=MAX_MODEL_BYTES, error=DataError, hint=AGAIN)
    if not {"disclosure.json", "leakage.json", "cover.json"} & set(documents):
        raise ConfigError("the folder holds no disclosure.json and no leak report: it is not a release of this version")
    if cover is not None:
        documents[COVER] = {"officer": dict(cover.officer)}
    return documents


def find(documents: Mapping[str, Any], source: str) -> Any:
    """Return the value of a source `file#/path`. Raises `KeyError` if the release does not have it."""
    name, _, path = source.partition("#")
    value: Any = documents[name]
    for part in path.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            value = value[int(part)] if part.isdigit() and int(part) < len(value) else _ABSENT
        else:
            value = value.get(part, _ABSENT) if isinstance(value, Mapping) else _ABSENT
        if value is _ABSENT:
            raise KeyError(source)
    return value


def pointer(file: str, *path: str | int) -> str:
    """Return the source of a field."""
    return "#".join((file, "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)))


class _Annex:
    """Collects the sections; `say` adds a statement if the release has its fields."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self.documents = documents
        self.sections: list[Section] = []

    def begin(self, title: str, asks: str) -> None:
        self.sections.append(Section(title, asks))

    def has(self, source: str) -> bool:
        try:
            return find(self.documents, source) is not None
        except KeyError:
            return False

    def say(self, text: str | Callable[..., str], *sources: str) -> bool:
        """Add a statement with the values of its sources; return False if a source is missing or the text is empty."""
        try:
            values = [find(self.documents, source) for source in sources]
        except KeyError:
            return False
        made = text.format(*values) if isinstance(text, str) else text(*values)
        if made:
            self.sections[-1].answers.append(Statement(made, sources))
        return bool(made)

    def first(self, text: str | Callable[..., str], *sources: str) -> bool:
        """Add a statement by the first of several sources that the release has."""
        return any(self.say(text, source) for source in sources)

    def each(self, text: str | Callable[..., str], file: str, *path: str) -> bool:
        """Add a statement per entry of a list or table."""
        try:
            entries = find(self.documents, pointer(file, *path))
        except KeyError:
            return False
        keys: Sequence[Any] = range(len(entries)) if isinstance(entries, list) else list(entries)
        added = [self.say(text, pointer(file, *path, key)) for key in keys]
        return any(added)

    def ask(self, name: str, hint: str) -> None:
        self.sections[-1].answers.append(Question(name, hint))

    def officer(self, name: str) -> None:
        """Add the officer's answer of the cover sheet, or ask for it."""
        words = name[0].upper() + name[1:]
        sources = pointer(COVER, "officer", name), pointer("cover.json", "officer", name)
        if not self.first(partial(_labelled, words), *sources):
            self.ask(words, OFFICER[name])


def annex(documents: Mapping[str, Any]) -> list[Section]:
    """Return the sections of the annex. Raises `DataError` for a folder whose fields have the wrong types."""
    made = _Annex(documents)
    with well_formed("the contents of the release", error=DataError):
        for part in (_release, _roles, _data, _outputs, _assumptions, _risks, _retention, _measures, _ehds, _five_safes):
            part(made)
    return made.sections


def annex_page(documents: Mapping[str, Any], digest: str) -> str:
    """Return the annex as a page; `digest` is the SHA-256 of the checksums of the folder."""
    sections = annex(documents)
    asked = sum(isinstance(each, Question) for section in sections for each in section.answers)
    return render(
        "dpia.html",
        title="Annex to the data protection impact assessment",
        sections=[(each, [_shown(answer) for answer in each.answers]) for each in sections],
        asked=asked,
        digest=digest,
    )


def _shown(answer: Statement | Question) -> dict[str, Any]:
    if isinstance(answer, Question):
        return {"asked": answer.name, "hint": answer.hint}
    return {"text": answer.text, "sources": answer.sources}


def to_dict(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """Return the annex as plain builtins."""
    return [
        {"section": each.title, "asks": each.asks, "answers": [_shown(answer) for answer in each.answers]} for each in sections
    ]


# -- the sections ----------------------------------------------------------------------------------------------------------


def _release(annex: _Annex) -> None:
    annex.begin("The release", "Which processing is this about?")
    if not annex.first("Title: {0}.", "run.json#/title", "cover.json#/title", "leakage.json#/about/study"):
        annex.ask("Title", "name of the study or release")
    if annex.say("This is run {0} of a study between sites, made by separate processes.", "run.json#/run"):
        annex.say("The study that the parties agreed on has the SHA-256 {0}.", "run.json#/study")
    elif not annex.say("This is a release of one table. Its owner: {0}.", "cover.json#/owner"):
        annex.say(_simulation, "leakage.json#/protocols")
    annex.first("Date: {0}.", "leakage.json#/about/date", "cover.json#/date")
    annex.officer("purpose")
    annex.officer("legal basis")
    annex.ask("Necessity and proportionality", "Art. 35(7)(b) GDPR: why this model, these columns and these rows are needed")


def _roles(annex: _Annex) -> None:
    annex.begin("Roles", "Who is controller, who are joint controllers (Art. 26 GDPR), who is processor (Art. 28)?")
    annex.officer("controller")
    annex.officer("officer")
    several = annex.say(_parties, _PARTIES) or annex.say("The parties of the study are {0}.", "leakage.json#/about/parties")
    annex.say(_contributors, _PARTIES)
    annex.say(lambda names: f"In the result are the data of {_several(names)}.", "run.json#/included")
    annex.say(_hosts, "study.toml#/hosts", _PARTIES)
    annex.say(partial(_signed, "The study was signed by"), "study.toml#/signatures")
    if several:
        annex.officer("joint controllers")
        annex.officer("processors")
    annex.officer("recipients")
    annex.officer("transfers")


def _data(annex: _Annex) -> None:
    annex.begin("Categories of data", "Whose data, which columns, which special categories (Art. 9 GDPR)?")
    book = "study.toml" if annex.has("study.toml#/codebook/features") else "model.json"
    annex.say(_target, f"{book}#/codebook/target", f"{book}#/codebook/classes")
    annex.each(describe_feature, book, "codebook", "features")
    annex.say("No table may have more than {0:,} rows.", f"{book}#/codebook/max_rows")
    annex.say(_persons, f"{book}#/codebook/identifier/parts")
    annex.say(_rows, "model.json#/statistics/class_counts", _EPSILON)
    annex.say("The evaluation counted {0:,} rows.", "evaluation.json#/figures/rows")
    annex.officer("people")
    annex.officer("data")


def _outputs(annex: _Annex) -> None:
    annex.begin("What left the site", "Which data were passed on, to whom, in which form?")
    annex.each(_output, "disclosure.json", "outputs")
    for party in annex.documents.get("leakage.json", {}).get("parties", {}):
        annex.say(partial(_received, party), pointer("leakage.json", "parties", party, "in plain words"))
    annex.say("The messages on record are {0:,}, with {1:,} bytes in all.", "cost.json#/messages", "cost.json#/bytes")
    annex.say(_unforeseen, "leakage.json#/unforeseen")


def _assumptions(annex: _Annex) -> None:
    annex.begin("Who could learn what, under which assumptions", "What must be true of people and machines for this to hold?")
    annex.each("The leak report concludes: {0}", "leakage.json", "follows")
    annex.say("Trust model: {0}", "statement.json#/trust_model")
    annex.say("Randomness: {0}", "statement.json#/randomness")
    annex.say("Not protected: {0}", "statement.json#/not_protected")
    annex.say("How settings were chosen: {0}", "statement.json#/tuning")
    if annex.has("study.toml#/privacy/epsilon"):
        annex.say("A fraction of {0:.2f} of the parties is assumed honest.", "study.toml#/privacy/honest_fraction")


def _risks(annex: _Annex) -> None:
    annex.begin(
        "Residual risks: extraction",
        "EDPB Opinion 28/2024: how likely is it that data of a person are extracted from the model, by means reasonably likely "
        "to be used?",
    )
    if annex.has(_PRICE[0]):
        for text in (_odds, _belief, _attack, _group):
            annex.say(text, *_PRICE)
        annex.say("Composition: {0}", "statement.json#/composition")
    else:
        annex.say(_exact, _EPSILON)
    annex.say(_accuracy, "evaluation.json#/figures/rows", "evaluation.json#/figures/accuracy")
    annex.begin("Residual risks: queries", "EDPB Opinion 28/2024: what do answers of the model reveal about a person?")
    answered = annex.say(_in_clear, "disclosure.json#/outputs")
    if not _checks(annex, "queries") and not answered:
        annex.ask("Number of queries", "how many answers of the model are given, to whom, and who counts them")
    annex.begin("Residual risks: small cells and differences", "Can a small group or a single person be read off?")
    annex.say("Counts below {0} are regarded as small.", "disclosure.json#/risk_appetite/frequency")
    _checks(annex, "floor", "recomputation", "dominance", "differencing", "budget")
    annex.say(_suppression, "study.toml#/limits/min_cell")
    annex.officer("risks")


def _retention(annex: _Annex) -> None:
    annex.begin("Retention and erasure", "How long are ledger, log, release and tables kept? What happens if a person objects?")
    annex.say("Access to the tables, and what is kept of them: {0}", "statement.json#/access")
    annex.officer("retention")
    if not annex.say(_erasure, *_PRICE):
        annex.say(_no_erasure, _EPSILON)
    annex.officer("requests")


def _measures(annex: _Annex) -> None:
    annex.begin("Measures", "Art. 32 and 35(7)(d) GDPR: what is done against these risks?")
    annex.each(_stage, "statement.json", "stages")
    annex.say("Sensitivity: {0}", "statement.json#/sensitivity")
    annex.say("The protocol, and what it opens: {0}", "disclosure.json#/five_safes/settings")
    annex.each(lambda rule: f"Rule of every site ({rule['name']}): {rule['sentence']}", "disclosure.json", "rules")
    annex.say("A sum needs the data of at least {0} parties.", "study.toml#/limits/min_parties")
    annex.say(lambda rows: f"Every party brings at least {rows} rows." if rows else "", "study.toml#/limits/min_rows")
    annex.say(partial(_signed, "All files of the folder are signed by"), "signatures.json#")
    annex.say(partial(_signed, "Model, statement and claims are signed by"), "common.signatures.json#")
    annex.say(partial(_signed, "The run was acknowledged by the roles"), "receipts.json#")
    annex.say("Software: {0} {1}.", "disclosure.json#/tool/name", "disclosure.json#/tool/version")
    annex.say("SHA-256 of the sources that drew the noise: {0}.", "statement.json#/sources")
    annex.ask("Further measures", "access control, encryption of disks, training of staff, contracts")


def _ehds(annex: _Annex) -> None:
    annex.begin(
        "European Health Data Space",
        "Regulation (EU) 2025/327, Art. 73: access to a secure processing environment by authorised and identified persons "
        "only, identifiable logs, and download of non-personal data only.",
    )
    annex.say("Projects, as the output check names them: {0}.", "disclosure.json#/five_safes/projects")
    annex.say(_pinned, _PARTIES)
    annex.say(_checked, "disclosure.json#/outputs", "disclosure.json#/status")
    annex.ask("Data permit", "number, health data access body, last day")
    annex.ask("Authorised persons", "who may use the environment, by name, and who keeps the log for at least one year")


def _five_safes(annex: _Annex) -> None:
    annex.begin("Five Safes", "Safe projects, people, settings, data and outputs: as the output check records them.")
    for name in ("projects", "people", "settings", "data", "outputs"):
        if not annex.say(partial(_labelled, f"Safe {name}"), f"disclosure.json#/five_safes/{name}"):
            annex.ask(f"Safe {name}", "the output check does not record it")
    annex.officer("decision")


# -- sentences -------------------------------------------------------------------------------------------------------------


def _checks(annex: _Annex, *names: str) -> bool:
    """Add the result of every check with one of these names, for each output."""
    added = False
    for at, output in enumerate(annex.documents.get("disclosure.json", {}).get("outputs", [])):
        for number, check in enumerate(output["checks"]):
            if check["name"] in names:
                source = pointer("disclosure.json", "outputs", at, "checks", number)
                added |= annex.say(lambda each: f"Check {each['name']!r}: {each['result']}. {_end(each['summary'])}", source)
    return added


def _several(names: Sequence[Any]) -> str:
    texts = [str(name) for name in names]
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts) or "nobody"


def _count(number: int, one: str, several: str) -> str:
    return f"1 {one}" if number == 1 else f"{number} {several}"


def _end(text: str) -> str:
    text = str(text).strip()
    return text if text.endswith(".") else f"{text}."


def _labelled(label: str, text: Any) -> str:
    return f"{label}: {text}" if str(text).strip() else ""


def _simulation(protocols: Sequence[str]) -> str:
    return (
        f"This is a simulation: one process ran {_several(protocols)} on all tables. It shows what a run between sites would "
        "open, and no site took part."
    )


def _parties(listed: Sequence[Mapping[str, Any]]) -> str:
    return f"The study names {_count(len(listed), 'party', 'parties')}: {_several([each['name'] for each in listed])}."


def _contributors(listed: Sequence[Mapping[str, Any]]) -> str:
    return f"These parties bring data: {_several([each['name'] for each in listed if each.get('contributes')])}."


def _pinned(listed: Sequence[Mapping[str, Any]]) -> str:
    keys = [f"{each['name']} ({str(each['identity'])[:16]}…)" for each in listed]
    return f"Only these sites, by the keys that the study names, can take part: {_several(keys)}."


def _target(target: str, classes: Sequence[str]) -> str:
    return f"The model predicts {target!r}, which is one of: {', '.join(classes)}."


def _persons(parts: Sequence[Mapping[str, Any]]) -> str:
    return f"Rows of one person are recognised by {_several([part['column'] for part in parts])}."


def _rows(counts: Sequence[int], epsilon: float | None) -> str:
    if epsilon:
        return f"The noisy counts of the classes add up to {sum(counts):,} rows (epsilon {epsilon:g})."
    return f"The model was made from {sum(counts):,} rows, counted exactly."


def _received(party: str, lines: Sequence[str]) -> str:
    return f"Received by {party}: {' '.join(lines)}"


def _unforeseen(labels: Sequence[str]) -> str:
    return f"Opened without being in any specification: {_several(labels)}. Do not use this release." if labels else ""


def _exact(epsilon: float | None) -> str:
    if epsilon:
        return f"What is opened carries noise for epsilon {epsilon:g}; the folder holds no statement that prices it further."
    return (
        "What is opened is exact: no epsilon was set, and nothing bounds what it reveals about a single person. Treat it as "
        "the tables are treated, unless every cell is large."
    )


def _no_erasure(epsilon: float | None) -> str:
    how = "with noise" if epsilon else "exactly"
    return (
        "Erasure after release: delete the person from the table and train again. What was opened cannot be recalled and "
        f"counts the person {how}."
    )


def _accuracy(rows: int, accuracy: float) -> str:
    return f"On {rows:,} held-out rows the model is right in {accuracy:.1%}: it would judge the others wrongly."


def _in_clear(outputs: Sequence[Mapping[str, Any]]) -> str:
    kinds = list(dict.fromkeys(each["output_type"] for each in outputs))
    if not kinds or any("shares" in kind for kind in kinds):
        return ""
    return f"Recipients hold the output itself ({_several(kinds)}): asking it for answers reveals no more."


def _suppression(floor: int) -> str:
    return f"The study suppresses cells of fewer than {floor} rows before a sum is opened." if floor else ""


def _signed(verb: str, entries: Mapping[str, Any]) -> str:
    """Name the signers with the beginning of their signatures."""
    texts = {name: entry if isinstance(entry, str) else entry["signature"] for name, entry in entries.items()}
    return f"{verb} {_several([f'{name} ({text[:12]}…)' for name, text in texts.items()])}." if texts else ""


def _stage(stage: Mapping[str, Any]) -> str:
    return (
        f"Noise of the stage {stage['name']!r}, epsilon {float(stage['epsilon']):.4g}, by the mechanism {stage['mechanism']}: "
        f"{_end(stage['sampler'])}"
    )


def _checked(outputs: Sequence[Mapping[str, Any]], status: str) -> str:
    names = _several([each["name"] for each in outputs])
    return f"{_count(len(outputs), 'output was', 'outputs were')} checked before download: {names}. Result: {status}."


def _hosts(hosts: Mapping[str, str], parties: Sequence[Mapping[str, Any]]) -> str:
    brings = {party["name"] for party in parties if party.get("contributes")}
    lines = []
    for role, name in hosts.items():
        note = "which also brings data" if name in brings else "which brings no data"
        lines.append(f"The role {role} is run by {name}, {note}.")
    return " ".join(lines)


def describe_feature(feature: Mapping[str, Any]) -> str:
    kind, name = str(feature["kind"]), feature["name"]
    if kind == "categorical":
        labels = feature.get("labels") or {}
        named = (f"{value} = {labels[value]}" if value in labels else value for value in feature["values"])
        domain = f"one of {len(feature['values'])} values ({', '.join(named)})"
    elif kind == "numeric":
        domain = (
            f"a number from {number_name(feature['low'])} to {number_name(feature['high'])} {feature.get('unit', '')}".strip()
        )
    else:
        domain = _KINDS.get(kind, kind)
        words = feature.get("words") or ()
        domain += f" ({len(words):,} listed words)" if words else f" ({feature.get('buckets')} buckets)"
    about = f": {feature['description']}" if feature.get("description") else ""
    return f"Column {name!r} is read, {domain}{', may be missing' if feature.get('optional') else ''}{about}."


def _output(output: Mapping[str, Any]) -> str:
    to = f"to {_several(output['to'])}" if output["to"] else "to those who get the folder"
    granted = ""
    if output.get("exception"):
        granted = f" Exception granted by {_several(output['exception']['granted_by'])}: {output['exception']['reason']}."
    opened = f"Opened: {describe_label(output['name'])} ({output['output_type']}), {to}."
    return f"{opened} The output check says: {output['status']}.{granted}"


def _factor(epsilon: float) -> float:
    return math.exp(min(epsilon, 700.0))


def _but(delta: float) -> str:
    return f", but for a chance of at most {delta:g}" if delta else ""


def _bounded(epsilon: float, delta: float) -> tuple[float, float]:
    """Return the `odds_bound` of the statement: the largest change of odds, and the probability of a larger one."""
    return (2 * _factor(epsilon), min(1.0, 3 * delta)) if delta else (_factor(epsilon), 0.0)


def _odds(epsilon: float, delta: float, unit: str) -> str:
    factor, chance = _bounded(epsilon, delta)
    return (
        f"Through {unit} the odds of anything that a reader concludes change by a factor of at most {factor:.3g} "
        f"(epsilon {epsilon:g}){_but(chance)}."
    )


def _belief(epsilon: float, delta: float, unit: str) -> str:
    factor, chance = _bounded(epsilon, delta)
    odds = factor * BELIEF / (1 - BELIEF)
    return (
        f"A reader who held it {BELIEF:.0%} likely that {unit} of a given person was used holds it at most "
        f"{100 * odds / (1 + odds):.3g}% likely after the release{_but(chance)}."
    )


def _attack(epsilon: float, delta: float, unit: str) -> str:
    factor = _factor(epsilon)
    caught = min(1.0, factor * FALSE_ALARM + delta, 1 - (1 - delta - FALSE_ALARM) / factor)
    return (
        f"An attack that wrongly claims membership of {unit} in {FALSE_ALARM:.0%} of the cases finds at most "
        f"{100 * caught:.3g}% of those whose data were used, whatever else the attacker knows and computes."
    )


def _erasure(epsilon: float, delta: float, unit: str) -> str:
    factor, chance = _bounded(epsilon, delta)
    return (
        f"Erasure after release: delete the person from the table and train again. Without {unit} the published release would "
        f"have been as likely up to a factor of {factor:.3g}{_but(chance)}."
    )


def _group(epsilon: float, delta: float, unit: str) -> str:
    factor, chance = _bounded(GROUP * epsilon, sum(_factor(epsilon * at) for at in range(GROUP)) * delta if delta else 0.0)
    return (
        f"For {GROUP} units together (each {unit}: a family, or several records of one person) the factor is at most "
        f"{factor:.3g}{_but(chance)}."
    )
