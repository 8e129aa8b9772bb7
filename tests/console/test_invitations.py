"""Invitations: they trust nobody and replace no pin."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.agent.config import SiteConfig
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.console.invitations import invitation_of, invited, keep_cards
from blindbayes.errors import ConfigError
from blindbayes.net.identity import Identity


def test_an_invitation_trusts_nobody_and_cannot_replace_a_pin(tmp_path: Path) -> None:
    home, identity = SiteFolder.create(tmp_path / "north", "north", config=SiteConfig())
    south, false = Identity.generate("south").card, Identity.generate("south").card
    keep_cards(home, invitation_of([south, identity.card]), identity.card)
    assert list(invited(home)) == ["south"]
    assert home.peers() == {}
    keep_cards(home, false.to_toml(), identity.card)
    assert invited(home)["south"].identity == false.identity  # people compare words: those of this card, not of the first
    for wrong in ("", "format = 'blindbayes.invitation/1'\ncards = 3", "cards = []", south.to_toml().replace("south", "../x")):
        with pytest.raises(ConfigError):
            keep_cards(home, wrong, identity.card)
