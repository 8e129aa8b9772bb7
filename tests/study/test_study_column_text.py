"""Text over columns: bags of words in shares, each word a feature of two values, equal to pooled training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Codebook, ColumnStudy, Limits, NaiveBayes, Privacy
from blindbayes.codebook import Numeric, Text
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.study.tasks.prediction import prediction_run
from blindbayes.testing.loopback import Loopback
from support.column_sites import Split, classes, errors, joined, predict, trained
from support.oracles import near_tie
from support.sites import bounded, paper_policy
from support.two_party import coins

WORDS = tuple(f"word{at}" for at in range(30))
AGE = Numeric("age", 0, 99, bins=4)
EXACT = Limits(min_cell=0)


def notes(rows: int = 300, seed: int = 0, *, missing: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, rows)
    body = ["Unlisted " + " ".join(rng.choice(WORDS[6 * own : 6 * own + 16], rng.integers(0, 9))) for own in kind]
    frame = pd.DataFrame({"body": body, "age": rng.integers(0, 90, rows), "kind": np.array(list("abc"))[kind]})
    if missing:
        frame.loc[::7, "body"] = None
    return frame


def book_of(**fields: Any) -> Codebook:
    given = {"words": WORDS} if "buckets" not in fields else {}
    return Codebook("kind", ("a", "b", "c"), (Text("body", model="bernoulli", **{**given, **fields}), AGE), max_rows=1000)


@pytest.mark.parametrize(
    ("fields", "holds"),
    [
        ({}, {"bank": ["age", "kind"], "shop": ["body"]}),
        ({"optional": True}, {"bank": ["kind"], "shop": ["body", "age"]}),
        ({"buckets": 16, "max_words": 5}, {"bank": ["age", "kind"], "shop": ["body"]}),
        ({"optional": True}, {"bank": ["body", "kind"], "shop": ["age"]}),  # of the class holder
    ],
)
def test_training_and_classification_equal_pooled_ones(fields: dict[str, Any], holds: dict[str, list[str]]) -> None:
    book, frame = book_of(**fields), notes(missing="optional" in fields)
    pooled = NaiveBayes(book).fit(frame[["body", "age"]], frame["kind"])
    study = ColumnStudy(book, limits=EXACT, options={"queries": 1000})
    model = study.simulate({name: frame[own] for name, own in holds.items()}, coins=coins("train")).model
    assert model.statistics() == pooled.statistics_
    new = notes(200, seed=5, missing=True)
    parts = {name: new[[column for column in own if column != "kind"]] for name, own in holds.items()}
    scores = pooled.predict_joint_log_proba(new[["body", "age"]])
    near = near_tie(model.columns.plan, scores)
    assert near.mean() < 0.1
    found = model.predict(parts, coins=coins("ask"))
    assert (found == pooled.predict(new[["body", "age"]]))[~near].all()
    assert (model.combine().predict(new[["body", "age"]]) == pooled.predict(new[["body", "age"]])).all()


def test_a_minimum_cell_acts_on_documents_as_on_any_category() -> None:
    """The same study with a declared column per word gives the same classes."""
    book, frame, new = book_of(), notes(), notes(100, seed=5)
    limits, options = Limits(min_cell=10), {"queries": 1000}
    assert "word1" in frame["body"].str.cat(sep=" ")
    spread = book.by_word

    def columns(rows: pd.DataFrame) -> pd.DataFrame:
        own = [set(text.lower().split()) for text in rows["body"]]
        return pd.DataFrame({f"body: {word}": ["present" if word in each else "absent" for each in own] for word in WORDS})

    text = ColumnStudy(book, limits=limits, options=options).simulate(
        {"bank": frame[["age", "kind"]], "shop": frame[["body"]]}, coins=coins("train")
    )
    plain = ColumnStudy(spread, limits=limits, options=options).simulate(
        {"bank": frame[["age", "kind"]], "shop": columns(frame)}, coins=coins("train")
    )
    assert np.array_equal(
        text.model.predict({"bank": new[["age"]], "shop": new[["body"]]}, coins=coins("ask")),
        plain.model.predict({"bank": new[["age"]], "shop": columns(new)}, coins=coins("ask")),
    )
    with pytest.raises(ConfigError, match="nothing to combine"):
        text.model.statistics()


def test_what_is_refused_says_why_and_what_it_would_cost() -> None:
    """Counts of uses are not counts of people. The stated megabytes are those of a run, up to a half."""
    for model in ("multinomial", "complement"):
        book = Codebook("kind", ("a", "b", "c"), (Text("body", words=WORDS, model=model),), max_rows=300)
        with pytest.raises(ConfigError, match=r"'body' is text: .* counts people.* 30 words cost about") as refused:
            ColumnStudy(book)
    stated = float(str(refused.value).split("about ")[1].split(" MB")[0])
    frame = notes()
    study = ColumnStudy(book_of(), limits=Limits(min_cell=10), options={"queries": 10})
    sent = study.simulate({"bank": frame[["age", "kind"]], "shop": frame[["body"]]}, coins=coins("train")).cost.bytes
    assert 0.67 < stated * 1e6 / sent < 1.5
    with pytest.raises(PrivacyError, match="all 30 words of one document"):
        ColumnStudy(book_of(), privacy=Privacy(epsilon=1.0))


def test_blocks_of_documents_stay_small() -> None:
    from blindbayes.data.columns import open_columns

    frame = notes(20)
    assert open_columns(frame[["age"]], book_of()).block_rows == 1 << 16
    wide = Codebook("kind", ("a", "b", "c"), (Text("body", buckets=4096, model="bernoulli"),), max_rows=10**6)
    source = open_columns(frame[["body"]], wide)
    assert source.block_rows * 4096 * 8 <= 1 << 25
    [block] = source.blocks(training=False)
    assert len(block.columns) == 4096


class Notes(Split):
    """Documents at one site, the class at another."""

    @property
    def book(self) -> Codebook:
        return book_of()


SPLIT = Notes(notes(), "kind", {"clinic": ("body",), "registry": ("age",)}, ("registry",))


def test_agents_train_and_classify_documents(tmp_path: Path) -> None:
    async def test() -> None:
        async with trained(tmp_path, SPLIT, limits=EXACT) as (office, study, model):
            assert joined(office.net, model).statistics() == SPLIT.pooled().statistics_
            new = notes(40, seed=3)
            ended = await predict(office, study, model, SPLIT.ask(tmp_path, new))
            assert errors(ended) == dict.fromkeys(SPLIT.holds)
            run_id = prediction_run(study.sha256, model, "monday")
            expected = SPLIT.pooled().predict(new[["body", "age"]])
            assert classes(office.net, run_id, "clinic")["kind"].tolist() == expected.tolist()

    bounded(test)


@pytest.mark.slow
def test_processes_train_and_classify_documents(tmp_path: Path) -> None:
    policy = paper_policy(max_runs_per_day=1000, min_overlap=0, min_cell=0)
    with Loopback(tmp_path / "sites", SPLIT.write(tmp_path / "tables"), policy=policy) as sites:
        study = SPLIT.study(sites, limits=EXACT)
        sites.approve(study)
        ended = sites.run(study)
        assert {each["state"] for each in ended.values()} == {"done"}, [each.get("message") for each in ended.values()]
        model, new = Path(ended["clinic"]["release"]).name, notes(40, seed=3)
        ended = sites.predict(study, model, "monday", SPLIT.ask(tmp_path, new))
        assert {each["state"] for each in ended.values()} == {"done"}, [each.get("message") for each in ended.values()]
        found = classes(sites, prediction_run(study.sha256, model, "monday"), "registry")["kind"]
        assert found.tolist() == SPLIT.pooled().predict(new[["body", "age"]]).tolist()
