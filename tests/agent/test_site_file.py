"""Changes of site.toml: of two at a time none is lost."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from blindbayes.agent import site_file
from blindbayes.agent.config import SiteConfig
from blindbayes.agent.site_file import version_of
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.agent.stricter import make_stricter
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import ConfigError


@pytest.fixture
def home(tmp_path: Path) -> SiteFolder:
    policy = Policy(exact_sums=True, min_rows=10, max_epsilon_per_run=2.0, site_figures="spread")
    made, _ = SiteFolder.create(tmp_path / "north", "north", config=SiteConfig(policy=policy))
    return made


def test_of_two_changes_at_a_time_none_is_lost_in_silence(home: SiteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    version, refused, threads = version_of(home.folder), list[str](), list[threading.Thread]()
    check = site_file.convert

    def second() -> None:
        try:
            make_stricter(home, "policy.exact_sums", "no", version, "Ada")
        except ConfigError as error:
            refused.append(str(error))

    def meanwhile(*given: Any) -> Any:  # after the file was read, before it is written
        if not threads:
            threads.append(threading.Thread(target=second))
            threads[0].start()
            threads[0].join(0.2)
        return check(*given)

    monkeypatch.setattr(site_file, "convert", meanwhile)
    make_stricter(home, "policy.min_rows", "50", version, "Ada")
    threads[0].join()
    home.reload()
    assert home.config.policy.min_rows == 50
    assert len(refused) == 1
    assert "was changed since" in refused[0]
    assert len(home.audit.where("event", "setting changed")) == 1
