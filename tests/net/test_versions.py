"""Sites that run different releases say so before anybody computes or pays."""

from __future__ import annotations

from blindbayes.net.versions import VERSIONS, are_versions, difference


def test_versions_of_a_peer_are_a_few_short_words() -> None:
    assert are_versions(VERSIONS)
    assert difference(VERSIONS, VERSIONS) is None
    assert difference(VERSIONS, {**VERSIONS, "journal": "7"}) is None
    before = {name: version for name, version in VERSIONS.items() if name != "noise"}  # when all noise was in shares
    assert "noise version none" in str(difference(VERSIONS, before))
    for wrong in ({"blindbayes": "\x1b[31m"}, {"a" * 30: "1"}, {str(n): "1" for n in range(20)}, {"wire": ""}):
        assert not are_versions(wrong)
