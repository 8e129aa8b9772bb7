"""Synthetic tables with a documented truth, for demos and tutorials.

The generators (`hospitals`, `bank_telecom`, `census`, `mail`) draw from a seed and return the truth beside the rows.
The papers' datasets are in blindbayes-papers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blindbayes.codebook import Categorical, Codebook, Numeric, Text


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Tables by party, their codebook, and the true parameters they were drawn from."""

    tables: dict[str, pa.Table]
    codebook: Codebook
    truth: dict[str, Any]


def _draw(
    generator: np.random.Generator, labels: npt.NDArray[np.int64], probabilities: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """One category per row, by the row's class."""
    edges = probabilities.cumsum(axis=1)
    points = generator.random(len(labels))
    drawn: npt.NDArray[np.int64] = (points[:, None] > edges[labels]).sum(axis=1).clip(max=probabilities.shape[1] - 1)
    return drawn


def _grid(values: npt.NDArray[np.float64], feature: Numeric) -> npt.NDArray[np.float64]:
    points = np.floor(np.clip(values, feature.low, feature.high) * feature.scale + 0.5)
    return points / feature.scale


def hospitals(rows: int = 6000, *, seed: int = 2008, sites: tuple[str, ...] = ("north", "south", "west")) -> Synthetic:
    """Readmission within 30 days at several hospitals whose patients differ: each alone sees a biased part.

    Truth: class-conditional tables below, the same everywhere; sites differ in size, in the share of readmissions and in how
    often the laboratory value is missing.
    """
    codebook = Codebook(
        "readmitted",
        ("no", "yes"),
        (
            Categorical("admission", ("elective", "emergency", "transfer")),
            Categorical("diagnosis", ("cardiac", "diabetes", "injury", "respiratory", "other")),
            Categorical("discharge", ("home", "home care", "rehabilitation")),
            Numeric("age", 0, 110, 1),
            Numeric("length_of_stay", 0, 60, 1),
            Numeric("hba1c", 3.0, 16.0, 0.1, optional=True),
        ),
        max_rows=10_000_000,
    )
    admission = np.array([[0.42, 0.50, 0.08], [0.20, 0.66, 0.14]])
    diagnosis = np.array([[0.18, 0.14, 0.24, 0.16, 0.28], [0.29, 0.26, 0.08, 0.22, 0.15]])
    discharge = np.array([[0.72, 0.18, 0.10], [0.48, 0.34, 0.18]])
    means = {"age": (56.0, 68.0), "length_of_stay": (4.5, 8.0), "hba1c": (6.1, 7.4)}
    deviations = {"age": (17.0, 13.0), "length_of_stay": (3.0, 4.5), "hba1c": (1.0, 1.5)}
    generator = np.random.default_rng(seed)
    shares = np.array([0.5, 0.3, 0.2, *([0.2] * max(0, len(sites) - 3))])[: len(sites)]
    shares = shares / shares.sum()
    readmitted = (0.14, 0.24, 0.35)
    tables: dict[str, pa.Table] = {}
    for at, site in enumerate(sites):
        count = round(rows * shares[at])
        labels = (generator.random(count) < readmitted[at % 3]).astype(np.int64)
        columns: dict[str, Any] = {}
        for name, table in (("admission", admission), ("diagnosis", diagnosis), ("discharge", discharge)):
            feature = codebook.feature(name)
            if isinstance(feature, Categorical):
                columns[name] = pa.array(np.array(feature.values, dtype=object)[_draw(generator, labels, table)])
        for name in ("age", "length_of_stay", "hba1c"):
            numeric = codebook.feature(name)
            if isinstance(numeric, Numeric):
                drawn = generator.normal(np.array(means[name])[labels], np.array(deviations[name])[labels])
                absent = (
                    (generator.random(count) < (0.1, 0.25, 0.4)[at % 3]) if numeric.optional else np.zeros(count, dtype=bool)
                )
                columns[name] = pa.array(_grid(drawn, numeric), mask=absent)
        columns["readmitted"] = pa.array(np.array(codebook.classes, dtype=object)[labels])
        tables[site] = pa.table(columns)
    truth = {
        "readmitted by site": {site: readmitted[at % 3] for at, site in enumerate(sites)},
        "admission": admission.tolist(),
        "diagnosis": diagnosis.tolist(),
        "discharge": discharge.tolist(),
        "means": means,
        "deviations": deviations,
    }
    return Synthetic(tables, codebook, truth)


_FIRST = ("anna", "bengt", "carla", "dmitri", "elena", "farid", "greta", "hugo", "ines", "jonas", "karin", "luis", "mina")
_LAST = ("abbas", "berger", "castro", "dahl", "eriksen", "fischer", "garcia", "holm", "ivanov", "jansen", "keller", "lopez")


def _misspelt(name: str, generator: np.random.Generator) -> str:
    """The name with one letter dropped, doubled, or exchanged with the next one; never the same name."""
    while True:
        at = int(generator.integers(0, len(name) - 1))
        found = (
            name[:at] + name[at + 1 :],
            name[:at] + name[at] + name[at:],
            name[:at] + name[at + 1] + name[at] + name[at + 2 :],
        )[int(generator.integers(3))]
        if found != name:
            return found


def bank_telecom(rows: int = 20_000, *, overlap: float = 0.18, seed: int = 2011) -> Synthetic:
    """A bank that knows who defaulted, and a telecom with other columns; `overlap` of the bank's customers are shared.

    Identifiers are e-mail addresses. Both companies write some in capitals or with blanks around, which normalisation
    repairs; in 2% of the telecom's, a letter is dropped, doubled or exchanged with the next, which nothing repairs: those
    rows do not join. 0.5% of the telecom's customers stand twice, one address in a thousand is absent. Truth: how many
    customers are shared, how many of them are lost to misspelling or absence, and how many pairs of rows join.
    """
    from blindbayes.codebook import IdPart, IdRecipe

    codebook = Codebook(
        "defaulted",
        ("no", "yes"),
        (
            Categorical("employment", ("employed", "self-employed", "retired", "unemployed")),
            Numeric("income", 0, 200_000, 100),
            Categorical("plan", ("prepaid", "basic", "premium")),
            Categorical("late_payments", ("none", "one", "several")),
            Numeric("tenure_months", 0, 360, 1),
        ),
        max_rows=10_000_000,
        variance_floor=1.0,
        identifier=IdRecipe((IdPart("email", "email"),)),
    )
    generator = np.random.default_rng(seed)
    shared = round(rows * overlap)
    bank_ids = np.arange(rows)
    telecom_ids = np.concatenate([generator.choice(rows, shared, replace=False), np.arange(rows, 2 * rows - shared)])
    label_of = (generator.random(2 * rows) < 0.22).astype(np.int64)
    tables = {
        "employment": np.array([[0.64, 0.14, 0.16, 0.06], [0.44, 0.20, 0.12, 0.24]]),
        "plan": np.array([[0.2, 0.5, 0.3], [0.5, 0.4, 0.1]]),
        "late_payments": np.array([[0.78, 0.16, 0.06], [0.38, 0.32, 0.30]]),
    }

    letters = np.random.default_rng(seed + 1)  # of its own: how addresses are written changes nothing else

    def spelled(ids: npt.NDArray[np.int64], style: int, wrong: npt.NDArray[np.bool_]) -> list[str | None]:
        texts: list[str | None] = []
        for at, identifier in enumerate(ids):
            name = f"{_FIRST[identifier % len(_FIRST)]}.{_LAST[identifier // len(_FIRST) % len(_LAST)]}"
            if wrong[at]:
                name = _misspelt(name, letters)
            text = f"{name}{identifier}@example.com"
            if (at + style) % 7 == 0:
                text = text.upper()
            if (at + style) % 11 == 0:
                text = f" {text} "
            texts.append(None if (at + style) % 997 == 0 else text)
        return texts

    def category(name: str, labels: npt.NDArray[np.int64]) -> pa.Array:
        feature = codebook.feature(name)
        if not isinstance(feature, Categorical):
            raise AssertionError("unreachable: only categorical features are drawn by table")
        return pa.array(np.array(feature.values, dtype=object)[_draw(generator, labels, tables[name])])

    def number(name: str, labels: npt.NDArray[np.int64], means: tuple[float, float], spread: tuple[float, float]) -> pa.Array:
        feature = codebook.feature(name)
        if not isinstance(feature, Numeric):
            raise AssertionError("unreachable: only numeric features are drawn by mean")
        return pa.array(_grid(generator.normal(np.array(means)[labels], np.array(spread)[labels]), feature))

    twice = generator.choice(len(telecom_ids), len(telecom_ids) // 200, replace=False)
    telecom_rows = np.concatenate([telecom_ids, telecom_ids[twice]])
    bank_labels, telecom_labels = label_of[bank_ids], label_of[telecom_rows]
    right, wrong = np.zeros(rows, dtype=bool), letters.random(len(telecom_rows)) < 0.02
    addresses = {"bank": spelled(bank_ids, 0, right), "telecom": spelled(telecom_rows, 3, wrong)}
    bank = pa.table(
        {
            "email": pa.array(addresses["bank"], pa.string()),
            "employment": category("employment", bank_labels),
            "income": number("income", bank_labels, (52_000, 36_000), (18_000, 15_000)),
            "defaulted": pa.array(np.array(codebook.classes, dtype=object)[bank_labels]),
        }
    )
    telecom = pa.table(
        {
            "email": pa.array(addresses["telecom"], pa.string()),
            "plan": category("plan", telecom_labels),
            "late_payments": category("late_payments", telecom_labels),
            "tenure_months": number("tenure_months", telecom_labels, (70, 34), (40, 26)),
        }
    )
    known = telecom_rows < rows  # by the bank
    reachable = np.array([text is not None for text in addresses["bank"]])[np.where(known, telecom_rows, 0)]
    absent = np.array([text is None for text in addresses["telecom"]]) | ~reachable
    truth = {
        "shared customers": shared,
        "rows of shared customers": int(known.sum()),  # at the telecom, where some stand twice
        "of them misspelt": int((known & wrong & ~absent).sum()),
        "of them without an address": int((known & absent).sum()),
        "pairs of rows that join": int((known & ~wrong & ~absent).sum()),
        "default rate": 0.22,
        "tables": {name: table.tolist() for name, table in tables.items()},
    }
    return Synthetic({"bank": bank, "telecom": telecom}, codebook, truth)


def census(rows: int = 50_000, *, seed: int = 1940) -> Synthetic:
    """One statistics office: employment status from eight attributes of a person. Truth: the tables below."""
    codebook = Codebook(
        "employed",
        ("no", "yes"),
        (
            Categorical("sex", ("female", "male")),
            Categorical("marital", ("single", "married", "widowed", "divorced")),
            Categorical("schooling", ("none", "primary", "secondary", "tertiary")),
            Categorical("urban", ("rural", "town", "city")),
            Categorical("household", ("1", "2", "3-4", "5+")),
            Categorical("owner", ("rents", "owns")),
            Numeric("age", 14, 100, 1),
            Numeric("children", 0, 12, 1),
        ),
        max_rows=10_000_000,
    )
    tables = {
        "sex": np.array([[0.68, 0.32], [0.36, 0.64]]),
        "marital": np.array([[0.34, 0.46, 0.14, 0.06], [0.30, 0.58, 0.03, 0.09]]),
        "schooling": np.array([[0.16, 0.46, 0.30, 0.08], [0.06, 0.34, 0.42, 0.18]]),
        "urban": np.array([[0.42, 0.32, 0.26], [0.30, 0.34, 0.36]]),
        "household": np.array([[0.10, 0.24, 0.38, 0.28], [0.09, 0.26, 0.42, 0.23]]),
        "owner": np.array([[0.58, 0.42], [0.52, 0.48]]),
    }
    means, deviations = {"age": (51.0, 38.0), "children": (2.1, 1.7)}, {"age": (21.0, 13.0), "children": (1.8, 1.5)}
    generator = np.random.default_rng(seed)
    labels = (generator.random(rows) < 0.55).astype(np.int64)
    columns: dict[str, Any] = {}
    for feature in codebook.features:
        if isinstance(feature, Categorical):
            columns[feature.name] = pa.array(
                np.array(feature.values, dtype=object)[_draw(generator, labels, tables[feature.name])]
            )
        elif isinstance(feature, Numeric):
            drawn = generator.normal(np.array(means[feature.name])[labels], np.array(deviations[feature.name])[labels])
            columns[feature.name] = pa.array(_grid(drawn, feature))
    columns["employed"] = pa.array(np.array(codebook.classes, dtype=object)[labels])
    truth = {"employed": 0.55, "tables": {k: v.tolist() for k, v in tables.items()}, "means": means, "deviations": deviations}
    return Synthetic({"office": pa.table(columns)}, codebook, truth)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_SPAM = _words(
    "free winner prize claim urgent offer click cash loan pills bonus guaranteed unsubscribe lottery selected cheap debt"
)
_HAM = _words(
    "meeting minutes agenda draft thanks attached budget lunch review schedule project team monday invoice patch notes"
)
_COMMON = _words("the and you for that with this have from not are your will about more what time please mail week")
_SYLLABLES = tuple(first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou")


def vocabulary(words: int) -> tuple[str, ...]:
    """So many words: some of English, the others of three syllables each. Public, and the same every time."""
    known = (*_COMMON, *_SPAM, *_HAM)
    size = len(_SYLLABLES)
    made = (_SYLLABLES[at % size] + _SYLLABLES[at // size % size] + _SYLLABLES[at // size**2 % size] for at in range(words))
    return (*known, *made)[:words]


def mail(
    rows: int = 6000, *, words: int = 50_000, seed: int = 1978, sites: tuple[str, ...] = ("alder", "birch", "cedar")
) -> Synthetic:
    """Mail at several providers, each of which sees campaigns of spam that the others do not: alone it misses theirs.

    Truth: words are drawn by Zipf's law; in spam, and in honest mail, those of two short lists come ten times as often, and a
    mail of a campaign has one word in four from the campaign's own fifty. Providers differ in size, in the share of spam
    (truth: `spam by site`), and in which of six campaigns they mostly meet.
    """
    listed = vocabulary(words)
    codebook = Codebook("kind", ("ham", "spam"), (Text("body", listed, max_words=60),), max_rows=10_000_000)
    generator = np.random.default_rng(seed)
    law = 1 / (np.arange(len(listed)) + 20.0)
    place = {word: at for at, word in enumerate(listed)}
    laws = np.stack([law, law])
    for label, favoured in enumerate((_HAM, _SPAM)):
        laws[label, [place[word] for word in favoured if word in place]] *= 10
    edges = np.cumsum(laws / laws.sum(axis=1, keepdims=True), axis=1)
    campaigns = np.random.default_rng(0).choice(
        np.arange(len(listed) // 20, len(listed)), (6, 50), replace=False
    )  # of any seed
    spam = (0.25, 0.4, 0.55)
    tables = {}
    for at, (site, share) in enumerate(zip(sites, np.linspace(1.5, 0.5, len(sites)) / len(sites), strict=True)):
        labels = (generator.random(round(rows * share)) < spam[at % 3]).astype(np.int64)
        usual = generator.random(len(labels)) < 0.85
        campaign = np.where(usual, (2 * at + generator.integers(0, 2, len(labels))) % 6, generator.integers(0, 6, len(labels)))
        document = np.repeat(np.arange(len(labels)), generator.integers(8, 40, len(labels)))
        points = generator.random(len(document))
        chosen = np.where(labels[document] == 1, *(np.searchsorted(edges[label], points) for label in (1, 0)))
        of_campaign = (labels[document] == 1) & (generator.random(len(document)) < 0.25)
        own = campaigns[campaign[document], generator.integers(0, 50, len(document))]
        texts = np.array(listed, dtype=object)[np.where(of_campaign, own, np.minimum(chosen, len(listed) - 1))]
        bodies = [" ".join(part).capitalize() + "." for part in np.split(texts, np.flatnonzero(np.diff(document)) + 1)]
        kinds = np.array(codebook.classes, dtype=object)[labels]
        tables[site] = pa.table({"body": pa.array(bodies), "kind": pa.array(kinds)})
    truth = {"spam by site": {site: spam[at % 3] for at, site in enumerate(sites)}, "campaigns": campaigns.tolist()}
    return Synthetic(tables, codebook, truth)
