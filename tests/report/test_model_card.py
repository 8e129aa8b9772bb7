"""The model card's head in YAML: the documented fields of Hugging Face's model cards, whatever the labels are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from blindbayes import Categorical, Codebook, Estimation, NaiveBayes, Privacy, PrivateNaiveBayes, RowStudy, Text
from blindbayes.datasets import hospitals
from blindbayes.report.model_card import model_card
from blindbayes.report.prose import to_html

HOSTILE = 'a: "b"\n---\nmodel-index: [x] # \x85 \U0001f600 \ud7ff'
# Hugging Face's specification of model cards (docs/hub/model-cards, modelcard.md): fields that this card may have.
FIELDS = {"library_name", "pipeline_tag", "tags", "metrics", "model-index"}
TASKS = {"tabular-classification", "text-classification"}


def head_of(card: str) -> dict[str, Any]:
    assert card.startswith("---\n")
    head, _, body = card.removeprefix("---\n").partition("\n---\n")
    assert body.lstrip().startswith("# Model card")
    return dict(yaml.safe_load(head))


def require_documented(head: dict[str, Any]) -> None:
    """The rules of the specification, as its validator has them."""
    assert set(head) <= FIELDS
    assert head["library_name"] == "blindbayes"
    assert head["pipeline_tag"] in TASKS
    assert all(type(tag) is str and tag == tag.lower() for tag in head["tags"])
    for entry in head.get("model-index", []):
        assert set(entry) == {"name", "results"}
        assert type(entry["name"]) is str
        for result in entry["results"]:
            assert {"task", "dataset", "metrics"} == set(result)
            assert result["task"]["type"] == head["pipeline_tag"]
            assert all(type(result["dataset"][name]) is str for name in ("type", "name", "split"))
            for metric in result["metrics"]:
                assert {"type", "name", "value"} == set(metric)
                assert type(metric["value"]) is float
                assert 0 <= metric["value"] <= 1
        assert {metric["type"] for metric in entry["results"][0]["metrics"]} == set(head["metrics"])


@pytest.fixture(scope="module")
def evaluated() -> Any:
    data = hospitals(900)
    study = RowStudy(data.codebook, estimation=Estimation(held_out=0.3))
    return study.evaluate(study.simulate(data.tables), data.tables)


def test_head_of_an_evaluation_holds_its_figures(evaluated: Any, tmp_path: Path) -> None:
    card = (evaluated.save(tmp_path / "release") / "model_card.md").read_text()
    head = head_of(card)
    require_documented(head)
    (entry,) = head["model-index"]
    figures = {metric["type"]: metric["value"] for metric in entry["results"][0]["metrics"]}
    assert figures["accuracy"] == pytest.approx(evaluated.figures["accuracy"], abs=1e-6)
    assert figures["balanced_accuracy"] == pytest.approx(evaluated.figures["balanced_accuracy"], abs=1e-6)
    auc = [each["auc"]["value"] for each in evaluated.figures["classes"].values()]
    assert figures["roc_auc"] == pytest.approx(sum(auc) / len(auc), abs=1e-6)
    assert "## How good it is" in card
    page = (tmp_path / "release" / "index.html").read_text()
    assert "pipeline_tag" not in page  # the head is for hubs, not for readers


def test_cards_without_an_evaluation_have_no_results() -> None:
    data = hospitals(900)
    exact = NaiveBayes(data.codebook).fit(data.tables["north"])
    head = head_of(model_card(exact._parameters(), {"title": "T"}))
    require_documented(head)
    assert "model-index" not in head
    assert "differential-privacy" not in head["tags"]
    private = RowStudy(data.codebook, privacy=Privacy(epsilon=1.0)).simulate(data.tables)
    head = head_of(private.files()["model_card.md"].decode())
    require_documented(head)
    assert "differential-privacy" in head["tags"]


def test_texts_of_the_codebook_and_the_title_stay_scalars(evaluated: Any) -> None:
    book = Codebook("a: b", ("- x", "{y}"), (Categorical("f", ("#", ":")),), max_rows=10)
    model = NaiveBayes(book).fit([["#"], [":"]], ["- x", "{y}"])
    card = model_card(model._parameters(), {"title": HOSTILE}, evaluation=evaluated.evaluation)
    head = head_of(card)
    require_documented(head)
    assert head["model-index"][0]["name"].startswith('a: "b"')
    assert "<script>" not in to_html(card)
    unnamed = head_of(model_card(model._parameters(), {}, evaluation=evaluated.evaluation))
    assert unnamed["model-index"][0]["name"] == "Naive Bayes classifier of a: b"


def test_card_of_texts_names_their_task() -> None:
    book = Codebook("kind", ("ham", "spam"), (Text("body", ("free", "win"), max_words=9),), max_rows=100)
    model = PrivateNaiveBayes(book, epsilon=5.0).fit([["free win"], ["free"]], ["spam", "ham"])
    assert head_of(model_card(model._parameters(), {}))["pipeline_tag"] == "text-classification"


def test_the_hubs_own_library_reads_the_results(evaluated: Any) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="pip install huggingface_hub: not a dependency")
    card = hub.ModelCard(model_card(evaluated.model._parameters(), {"title": HOSTILE}, evaluation=evaluated.evaluation))
    results = {each.metric_type: each.metric_value for each in card.data.eval_results}
    assert results["accuracy"] == pytest.approx(evaluated.figures["accuracy"], abs=1e-6)
    assert card.data.pipeline_tag == "tabular-classification"
