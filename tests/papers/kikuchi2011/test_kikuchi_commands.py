"""Algorithm 2 between two sites from the command line: study init, sign, approve, run, predict, each agent a process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from blindbayes import Codebook, NaiveBayes
from blindbayes.codebook import Categorical, Numeric
from blindbayes.testing.loopback import Loopback, open_policy
from support.commands import BLINDBAYES, blindbayes

BOOK = Codebook("y", ("a", "b"), (Categorical("v", ("0", "1", "2")), Numeric("u", 0, 9, bins=3)), max_rows=1000)


def joined() -> pd.DataFrame:
    """People of the bank, with what the shop knows of them: it lacks a quarter."""
    rng = np.random.default_rng(11)
    b = rng.random(160) < 0.5
    frame = pd.DataFrame({"id": [f"p{at}" for at in range(160)], "u": rng.integers(0, 10, 160), "y": np.where(b, "b", "a")})
    frame["v"] = np.where(rng.random(160) < 0.8, b + 1, 0).astype(str)
    frame.loc[rng.random(160) < 0.25, "v"] = None
    return frame


@pytest.mark.parametrize(
    ("protocol", "flags"),
    [
        ("set_intersection", ()),
        pytest.param("set_intersection", ("--proofs",), marks=pytest.mark.slow),
        ("distorted_intersection", ()),
    ],
    ids=["set_intersection", "set_intersection_proofs", "distorted_intersection"],
)
def test_two_sites_train_and_classify_from_the_command_line(protocol: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    people = joined()
    known = people.dropna(subset="v")[["id", "v"]].sample(frac=1, random_state=3)
    strangers = pd.DataFrame({"id": [f"s{at}" for at in range(30)], "v": "1"})
    people[["id", "u", "y"]].to_csv(tmp_path / "bank.csv", index=False)
    pd.concat([known, strangers]).to_csv(tmp_path / "shop.csv", index=False)
    optional = BOOK.with_features((Categorical("v", ("0", "1", "2"), optional=True), BOOK.features[1]))
    expected = NaiveBayes(optional).fit(people[["v", "u"]], people["y"])
    BOOK.to_toml(tmp_path / "codebook.toml")
    sources: dict[str, str | None] = {name: str(tmp_path / f"{name}.csv") for name in ("bank", "shop")}
    policy = open_policy(protocols=("set_intersection", "distorted_intersection"), min_overlap=0, min_cell=0)
    study = tmp_path / "study.toml"
    with Loopback(tmp_path / "sites", sources, policy=policy) as sites:
        folders = {name: site.home.folder for name, site in sites.sites.items()}
        cards = [word for folder in folders.values() for word in ("--card", folder / "card.toml")]
        holds = ("--holds", "bank=u", "--holds", "shop=v", "--labelled", "bank", "--key", "id", "--duplicates", "first")
        options = ("--protocol", protocol, "--queries", 50, "--codebook", tmp_path / "codebook.toml", "--min-cell", 0, *flags)
        blindbayes("study", "init", study, "--title", "T", *cards, *holds, *options)
        assert protocol in blindbayes("study", "check", study)
        for folder in folders.values():
            blindbayes("study", "sign", study, "--config", folder)
            blindbayes("site", "approve", study, "--config", folder)
        run = json.loads(blindbayes("study", "run", study, "--config", folders["bank"], "--json"))["run"]
        asked = people.dropna(subset="v")[:40]
        asked[["u"]].to_csv(tmp_path / "bank-asked.csv", index=False)
        asked[["v"]].to_csv(tmp_path / "shop-asked.csv", index=False)
        predict = {
            name: ["study", "predict", study, "--batch", "b", "--table", tmp_path / f"{name}-asked.csv", "--config", folder]
            for name, folder in folders.items()
        }
        other = subprocess.Popen([BLINDBAYES, *map(str, predict["bank"])], stdout=subprocess.PIPE)
        blindbayes(*predict["shop"], "--out", tmp_path / "classes.csv")
        other.communicate(timeout=120)
    found, pooled = pd.read_csv(tmp_path / "classes.csv")["y"], expected.predict(asked[["v", "u"]])
    if protocol == "set_intersection":
        assert found.tolist() == pooled.tolist()
    else:  # thinning errs
        assert (found.to_numpy() == pooled).mean() > 0.6
    label = {"set_intersection": "intersection_size", "distorted_intersection": "thinned_size"}[protocol]
    report = json.loads((folders["shop"] / "releases" / run / "leakage.json").read_text())
    assert set(report["parties"]["shop"]["opened"]) == {label}
    leak = {"set_intersection": "learned the exact number of persons", "distorted_intersection": "learned a thinned size"}
    assert leak[protocol] in json.dumps(report)
    statement = (folders["shop"] / "releases" / run / "statement.md").read_text()
    assert ("caught (zero-knowledge proofs)" in statement) == bool(flags)
