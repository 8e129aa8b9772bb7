"""An invitation: the cards of a consortium in one file. They wait here until the words of each were compared."""

from __future__ import annotations

import tomlkit

from blindbayes.agent.folder import SiteFolder
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.io.files import make_private_folder, write_whole
from blindbayes.io.untrusted import bytes_of, read_toml
from blindbayes.net.identity import Card

FORMAT = "blindbayes.invitation/1"
_MOST = 100


def invitation_of(cards: list[Card]) -> str:
    """The file: public, and worth nothing before words are compared."""
    document = tomlkit.document()
    document.add(tomlkit.comment("an invitation: cards of sites; compare the words of each by telephone before you pin it"))
    document["format"] = FORMAT
    document["cards"] = [tomlkit.string(card.to_toml(), multiline=True) for card in cards]
    return tomlkit.dumps(document)


def keep_cards(home: SiteFolder, text: str, own: Card) -> list[str]:
    """Put the cards of an invitation, or one card, beside the site's own; none is trusted by that. The names."""
    table = read_toml(text, "the invitation")
    if table.get("format") == FORMAT:
        texts = table.get("cards")
    else:
        texts = [text]
    if not isinstance(texts, list) or len(texts) > _MOST or not all(isinstance(each, str) for each in texts):
        raise ConfigError("this is no invitation: it has a list of cards")
    cards = [Card.from_toml(each) for each in texts]
    folder = make_private_folder(home.folder / "invited")
    for card in cards:
        if card.identity != own.identity and card.name != own.name:
            write_whole(folder / f"{card.name}.toml", card.to_toml().encode())
    return [card.name for card in cards]


def invited(home: SiteFolder) -> dict[str, Card]:
    """Cards that wait for their words, by name; those that are pinned wait no longer."""
    found, pinned = {}, home.peers()
    for path in sorted((home.folder / "invited").glob("*.toml"))[:_MOST]:
        try:
            card = Card.from_toml(bytes_of(path))
        except (BlindbayesError, OSError):
            continue
        known = pinned.get(card.name)
        if known is None or known.identity != card.identity:
            found[card.name] = card
    return found
