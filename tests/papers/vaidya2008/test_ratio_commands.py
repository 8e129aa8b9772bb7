"""Protocol 3 in shares between three sites from the command line: study init, sign, approve, run, predict."""

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


@pytest.mark.slow
def test_three_sites_train_in_shares_and_one_learns_its_classes(tmp_path: Path) -> None:
    rng, names = np.random.default_rng(27), ("north", "south", "west")
    label = rng.random(240) < 0.5
    v, u = np.where(rng.random(240) < 0.8, label + 1, 0).astype(str), rng.integers(0, 10, 240)
    rows = pd.DataFrame({"v": v, "u": u, "y": np.where(label, "b", "a")})
    for at, name in enumerate(names):
        rows[80 * at : 80 * (at + 1)].to_csv(tmp_path / f"{name}.csv", index=False)
    asked = rows[["v", "u"]][:20]
    asked.to_csv(tmp_path / "new.csv", index=False)
    BOOK.to_toml(tmp_path / "codebook.toml")
    sources: dict[str, str | None] = {name: str(tmp_path / f"{name}.csv") for name in names}
    study = tmp_path / "study.toml"
    with Loopback(tmp_path / "sites", sources, policy=open_policy(min_cell=0)) as sites:
        folders = {name: site.home.folder for name, site in sites.sites.items()}
        cards = [word for folder in folders.values() for word in ("--card", folder / "card.toml")]
        options = ("--protocol", "private_ratio", "--queries", 100, "--codebook", tmp_path / "codebook.toml")
        blindbayes("study", "init", study, "--title", "T", *cards, *options)
        for folder in folders.values():
            blindbayes("study", "sign", study, "--config", folder)
            blindbayes("site", "approve", study, "--config", folder)
        run = json.loads(blindbayes("study", "run", study, "--config", folders["north"], "--json"))["run"]
        ask = ("study", "predict", study, "--batch", "monday", "--to", "south")
        others = [
            subprocess.Popen([BLINDBAYES, *map(str, ask), "--count", "20", "--config", str(folders[name])])
            for name in ("north", "west")
        ]
        blindbayes(*ask, "--table", tmp_path / "new.csv", "--config", folders["south"], "--out", tmp_path / "classes.csv")
        assert [other.wait(timeout=120) for other in others] == [0, 0]
        report = json.loads((folders["south"] / "releases" / run / "leakage.json").read_text())
    expected = NaiveBayes(BOOK).fit(rows[["v", "u"]], rows["y"]).predict(asked)
    assert pd.read_csv(tmp_path / "classes.csv")["y"].tolist() == expected.tolist()
    assert report["parties"]["south"]["opened"] == []
