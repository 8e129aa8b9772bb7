"""Invitations: the cards of a consortium in one file. A card is trusted only once its words were compared."""

from __future__ import annotations

import tomlkit

from blindbayes.agent.store.folder import SiteFolder
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.io.files import make_private_folder, write_whole
from blindbayes.io.untrusted import read_limited, read_toml
from blindbayes.net.identity import Card

FORMAT = "blindbayes.invitation/1"
_MAX_CARDS = 100


def invitation_of(cards: list[Card]) -> str:
    """Return the text of an invitation. It is public and proves nothing by itself."""
    document = tomlkit.document()
    document.add(tomlkit.comment("an invitation: cards of sites; compare the words of each by telephone before you pin it"))
    document["format"] = FORMAT
    document["cards"] = [tomlkit.string(card.to_toml(), multiline=True) for card in cards]
    return tomlkit.dumps(document)


def read_cards(text: str) -> list[Card]:
    """Parse the cards of an invitation, or one card."""
    table = read_toml(text, "the invitation")
    texts = table.get("cards") if table.get("format") == FORMAT else [text]
    if not isinstance(texts, list) or len(texts) > _MAX_CARDS or not all(isinstance(each, str) for each in texts):
        raise ConfigError("this is not an invitation: it needs a list of cards")
    return [Card.from_toml(each) for each in texts]


def keep_cards(home: SiteFolder, text: str, own: Card) -> list[str]:
    """Store the cards of an invitation, or one card, without trusting them; return their names."""
    cards = read_cards(text)
    folder = make_private_folder(home.folder / "invited")
    for card in cards:
        if card.identity != own.identity and card.name != own.name:
            write_whole(folder / f"{card.name}.toml", card.to_toml().encode())
    return [card.name for card in cards]


def invited(home: SiteFolder) -> dict[str, Card]:
    """Return the stored cards that are not pinned yet, by name."""
    waiting, pinned = {}, home.peers()
    for path in sorted((home.folder / "invited").glob("*.toml"))[:_MAX_CARDS]:
        try:
            card = Card.from_toml(read_limited(path))
        except (BlindbayesError, OSError):
            continue
        known = pinned.get(card.name)
        if known is None or known.identity != card.identity:
            waiting[card.name] = card
    return waiting
