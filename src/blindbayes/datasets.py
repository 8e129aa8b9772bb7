"""Synthetic tables with a documented truth, for demos and tutorials.

The generators (`hospitals`, `bank_telecom`, `census`, `mail`) draw from a seed and return the truth with the rows.
The papers' datasets are in blindbayes-papers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blindbayes.codebook import Categorical, Codebook, Feature, IdPart, IdRecipe, Numeric, Text

Ints = npt.NDArray[np.int64]
# The distribution of a feature: a row of probabilities for each class, or the means and the deviations of the classes.
Law = list[list[float]] | tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Tables by party, their codebook, and the true parameters they were drawn from."""

    tables: dict[str, pa.Table]
    codebook: Codebook
    truth: dict[str, Any]


def _column(generator: np.random.Generator, feature: Feature, labels: Ints, law: Law, missing: float = 0.0) -> pa.Array:
    """Draw one value per row, by the class of the row."""
    if isinstance(feature, Categorical):
        edges = np.array(law).cumsum(axis=1)
        points = generator.random(len(labels))
        codes = (points[:, None] > edges[labels]).sum(axis=1).clip(max=edges.shape[1] - 1)
        return pa.array(np.array(feature.values, dtype=object)[codes])
    if not isinstance(feature, Numeric):
        raise AssertionError("unreachable: texts are drawn by their own generator")
    means, deviations = (np.array(each) for each in law)
    values = np.clip(generator.normal(means[labels], deviations[labels]), feature.low, feature.high)
    absent = generator.random(len(labels)) < missing if feature.optional else None
    return pa.array(np.floor(values * feature.scale + 0.5) / feature.scale, mask=absent)


def _table(
    generator: np.random.Generator, codebook: Codebook, labels: Ints, laws: Mapping[str, Law], missing: float = 0.0
) -> pa.Table:
    columns = {each.name: _column(generator, each, labels, laws[each.name], missing) for each in codebook.features}
    return pa.table({**columns, codebook.target: np.array(codebook.classes, dtype=object)[labels]})


def hospitals(rows: int = 6000, *, seed: int = 2008, sites: tuple[str, ...] = ("north", "south", "west")) -> Synthetic:
    """Readmission within 30 days at several hospitals, each of which hardly sees some of the diagnoses.

    A patient with a diagnosis is readmitted with the same probability everywhere. Sites differ in size, in which diagnoses
    they treat (truth: `case mix`), hence in the share of readmissions, and in how often the laboratory value is missing.
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
    laws: dict[str, Law] = {
        "admission": [[0.42, 0.50, 0.08], [0.26, 0.60, 0.14]],
        "diagnosis": [[0.04, 0.30, 0.36, 0.04, 0.26], [0.40, 0.06, 0.03, 0.45, 0.06]],
        "discharge": [[0.72, 0.18, 0.10], [0.54, 0.30, 0.16]],
        "age": ((56.0, 63.0), (17.0, 14.0)),
        "length_of_stay": ((4.5, 6.0), (3.0, 4.0)),
        "hba1c": ((6.1, 6.6), (1.0, 1.3)),
    }
    case_mix = ((3.0, 0.3, 2.0, 0.02, 2.0), (0.02, 1.0, 0.2, 4.0, 0.3), (0.05, 4.0, 0.05, 0.05, 3.0))  # weights of diagnoses
    whole = np.array([[0.7], [0.3]]) * np.array(laws["diagnosis"])  # class and diagnosis together, without a choice of patients
    generator = np.random.default_rng(seed)
    shares, missing = np.array([0.55, 0.33, *[0.12] * max(1, len(sites) - 2)])[: len(sites)], (0.1, 0.25, 0.4)
    tables: dict[str, pa.Table] = {}
    readmitted: dict[str, float] = {}
    for index, (site, share) in enumerate(zip(sites, shares / shares.sum(), strict=True)):
        here = whole * np.array(case_mix[index % 3])
        here /= here.sum()
        labels = (generator.random(round(rows * share)) < here[1].sum()).astype(np.int64)
        treated: Law = (here / here.sum(axis=1, keepdims=True)).tolist()
        tables[site] = _table(generator, codebook, labels, laws | {"diagnosis": treated}, missing[index % 3])
        readmitted[site] = float(here[1].sum())
    mixes = {site: case_mix[index % 3] for index, site in enumerate(sites)}
    return Synthetic(tables, codebook, {"readmitted by site": readmitted, "case mix": mixes, **_truth(laws)})


def _truth(laws: Mapping[str, Law]) -> dict[str, Any]:
    tables = {name: law for name, law in laws.items() if isinstance(law, list)}
    means, deviations = ({name: law[part] for name, law in laws.items() if name not in tables} for part in (0, 1))
    return {"tables": tables, "means": means, "deviations": deviations}


_FIRST = ("anna", "bengt", "carla", "dmitri", "elena", "farid", "greta", "hugo", "ines", "jonas", "karin", "luis", "mina")
_LAST = ("abbas", "berger", "castro", "dahl", "eriksen", "fischer", "garcia", "holm", "ivanov", "jansen", "keller", "lopez")


def _misspelt(name: str, generator: np.random.Generator) -> str:
    """Drop, double or swap one letter of a name; never return the same name."""
    while True:
        at = int(generator.integers(0, len(name) - 1))
        changed = (
            name[:at] + name[at + 1 :],
            name[:at] + name[at] + name[at:],
            name[:at] + name[at + 1] + name[at] + name[at + 2 :],
        )[int(generator.integers(3))]
        if changed != name:
            return changed


def _addresses(ids: Ints, style: int, wrong: npt.NDArray[np.bool_], letters: np.random.Generator) -> list[str | None]:
    texts: list[str | None] = []
    for index, identifier in enumerate(ids):
        name = f"{_FIRST[identifier % len(_FIRST)]}.{_LAST[identifier // len(_FIRST) % len(_LAST)]}"
        text = f"{_misspelt(name, letters) if wrong[index] else name}{identifier}@example.com"
        if (index + style) % 7 == 0:
            text = text.upper()
        if (index + style) % 11 == 0:
            text = f" {text} "
        texts.append(None if (index + style) % 997 == 0 else text)
    return texts


def bank_telecom(rows: int = 20_000, *, overlap: float = 0.18, seed: int = 2011) -> Synthetic:
    """Return a bank that knows who defaulted, and a telecom with other columns; `overlap` of the bank's customers are shared.

    Identifiers are e-mail addresses. Both companies write some in capitals or with blanks around, which normalisation
    repairs; in 2% of the telecom's, a letter is dropped, doubled or swapped with the next, which nothing repairs: those rows
    do not join. 0.5% of the telecom's customers occur twice, one address in a thousand is absent. Truth: the number of
    shared customers, of those lost to misspelling or absence, and of pairs of rows that join.
    """
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
    laws: dict[str, Law] = {
        "employment": [[0.64, 0.14, 0.16, 0.06], [0.44, 0.20, 0.12, 0.24]],
        "income": ((52_000, 36_000), (18_000, 15_000)),
        "plan": [[0.2, 0.5, 0.3], [0.5, 0.4, 0.1]],
        "late_payments": [[0.78, 0.16, 0.06], [0.38, 0.32, 0.30]],
        "tenure_months": ((70, 34), (40, 26)),
    }
    generator = np.random.default_rng(seed)
    letters = np.random.default_rng(seed + 1)  # separate: the spelling of addresses changes nothing else
    shared = round(rows * overlap)
    bank_ids = np.arange(rows)
    telecom_ids = np.concatenate([generator.choice(rows, shared, replace=False), np.arange(rows, 2 * rows - shared)])
    label_of = (generator.random(2 * rows) < 0.22).astype(np.int64)
    twice = generator.choice(len(telecom_ids), len(telecom_ids) // 200, replace=False)
    telecom_rows = np.concatenate([telecom_ids, telecom_ids[twice]])
    right, wrong = np.zeros(rows, dtype=bool), letters.random(len(telecom_rows)) < 0.02
    addresses = {"bank": _addresses(bank_ids, 0, right, letters), "telecom": _addresses(telecom_rows, 3, wrong, letters)}

    def columns(ids: Ints, *names: str) -> dict[str, pa.Array]:
        return {name: _column(generator, codebook.feature(name), label_of[ids], laws[name]) for name in names}

    bank = {"email": pa.array(addresses["bank"], pa.string()), **columns(bank_ids, "employment", "income")}
    bank["defaulted"] = pa.array(np.array(codebook.classes, dtype=object)[label_of[bank_ids]])
    own = columns(telecom_rows, "plan", "late_payments", "tenure_months")
    telecom = {"email": pa.array(addresses["telecom"], pa.string()), **own}
    known = telecom_rows < rows  # by the bank
    reachable = np.array([text is not None for text in addresses["bank"]])[np.where(known, telecom_rows, 0)]
    absent = np.array([text is None for text in addresses["telecom"]]) | ~reachable
    truth = {
        "shared customers": shared,
        "rows of shared customers": int(known.sum()),  # at the telecom, where some occur twice
        "of them misspelt": int((known & wrong & ~absent).sum()),
        "of them without an address": int((known & absent).sum()),
        "pairs of rows that join": int((known & ~wrong & ~absent).sum()),
        "default rate": 0.22,
        **_truth(laws),
    }
    return Synthetic({"bank": pa.table(bank), "telecom": pa.table(telecom)}, codebook, truth)


def census(rows: int = 50_000, *, seed: int = 1940) -> Synthetic:
    """One statistics office: employment status from eight attributes of a person."""
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
    laws: dict[str, Law] = {
        "sex": [[0.68, 0.32], [0.36, 0.64]],
        "marital": [[0.34, 0.46, 0.14, 0.06], [0.30, 0.58, 0.03, 0.09]],
        "schooling": [[0.16, 0.46, 0.30, 0.08], [0.06, 0.34, 0.42, 0.18]],
        "urban": [[0.42, 0.32, 0.26], [0.30, 0.34, 0.36]],
        "household": [[0.10, 0.24, 0.38, 0.28], [0.09, 0.26, 0.42, 0.23]],
        "owner": [[0.58, 0.42], [0.52, 0.48]],
        "age": ((51.0, 38.0), (21.0, 13.0)),
        "children": ((2.1, 1.7), (1.8, 1.5)),
    }
    generator = np.random.default_rng(seed)
    labels = (generator.random(rows) < 0.55).astype(np.int64)
    return Synthetic({"office": _table(generator, codebook, labels, laws)}, codebook, {"employed": 0.55, **_truth(laws)})


_SPAM = "free winner prize claim urgent offer click cash loan pills bonus guaranteed unsubscribe lottery selected cheap debt"
_HAM = "meeting minutes agenda draft thanks attached budget lunch review schedule project team monday invoice patch notes"
_COMMON = "the and you for that with this have from not are your will about more what time please mail week"
_SYLLABLES = tuple(first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou")


def vocabulary(words: int) -> tuple[str, ...]:
    """Return a fixed public list of words: some of English, the others of three syllables each."""
    known = f"{_COMMON} {_SPAM} {_HAM}".split()
    size = len(_SYLLABLES)
    made = (_SYLLABLES[at % size] + _SYLLABLES[at // size % size] + _SYLLABLES[at // size**2 % size] for at in range(words))
    return (*known, *made)[:words]


def mail(
    rows: int = 6000, *, words: int = 50_000, seed: int = 1978, sites: tuple[str, ...] = ("alder", "birch", "cedar")
) -> Synthetic:
    """Mail at several providers, each of which sees campaigns of spam that the others do not: alone it misses theirs.

    Words follow Zipf's law. In spam and in honest mail, those of two short lists are ten times as frequent, and one word in
    four of a campaign's mail is one of the campaign's own fifty. Providers differ in size, in the share of spam (truth:
    `spam by site`), and in which of six campaigns they mostly receive.
    """
    listed = vocabulary(words)
    codebook = Codebook("kind", ("ham", "spam"), (Text("body", listed, max_words=60),), max_rows=10_000_000)
    generator = np.random.default_rng(seed)
    law = 1 / (np.arange(len(listed)) + 20.0)
    place = {word: at for at, word in enumerate(listed)}
    laws = np.stack([law, law])
    for label, favoured in enumerate((_HAM, _SPAM)):
        laws[label, [place[word] for word in favoured.split() if word in place]] *= 10
    edges = np.cumsum(laws / laws.sum(axis=1, keepdims=True), axis=1)
    campaigns = np.random.default_rng(0).choice(
        np.arange(len(listed) // 20, len(listed)), (6, 50), replace=False
    )  # of any seed
    spam = (0.25, 0.4, 0.55)
    tables = {}
    for at, (site, share) in enumerate(zip(sites, np.linspace(1.5, 0.5, len(sites)) / len(sites), strict=True)):
        labels = (generator.random(round(rows * share)) < spam[at % 3]).astype(np.int64)
        common = generator.random(len(labels)) < 0.85
        campaign = np.where(common, (2 * at + generator.integers(0, 2, len(labels))) % 6, generator.integers(0, 6, len(labels)))
        document = np.repeat(np.arange(len(labels)), generator.integers(8, 40, len(labels)))
        points = generator.random(len(document))
        chosen = np.where(labels[document] == 1, *(np.searchsorted(edges[label], points) for label in (1, 0)))
        from_campaign = (labels[document] == 1) & (generator.random(len(document)) < 0.25)
        own = campaigns[campaign[document], generator.integers(0, 50, len(document))]
        texts = np.array(listed, dtype=object)[np.where(from_campaign, own, np.minimum(chosen, len(listed) - 1))]
        bodies = [" ".join(part).capitalize() + "." for part in np.split(texts, np.flatnonzero(np.diff(document)) + 1)]
        kinds = np.array(codebook.classes, dtype=object)[labels]
        tables[site] = pa.table({"body": pa.array(bodies), "kind": pa.array(kinds)})
    truth = {"spam by site": {site: spam[at % 3] for at, site in enumerate(sites)}, "campaigns": campaigns.tolist()}
    return Synthetic(tables, codebook, truth)
