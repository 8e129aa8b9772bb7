"""Joins and leaves: the paper's u values and the interleaved groups of keys."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.dp.distributed.noise_shares import dishonest, honest_survivors
from blindbayes.errors import ConfigError
from blindbayes.protocols.registry import SumSetup
from blindbayes_papers.huai2015.oblivious_sum import PROTOCOL
from blindbayes_papers.huai2015.oblivious_sum.membership import Groups, Views, max_rekeyed, pattern

STEPS = 10_000


def names(n: int) -> list[str]:
    return [f"p{at}" for at in range(n)]


def require_views(views: Views) -> None:
    n = len(views.of)
    assert all(n / 2 < value <= n for value in views.of.values())
    assert sorted(views.of.values()) == pattern(n)


@pytest.mark.parametrize("n", range(1, 60))
def test_every_join_and_leave_keeps_the_pattern(n: int) -> None:
    """By induction a proof for n below 60: from the pattern of n, each leave gives that of n - 1 and a join that of n + 1."""
    require_views(Views(names(n)))
    for leaver in names(n):
        views = Views(names(n))
        before = dict(views.of)
        told = views.leave(leaver)
        require_views(views)
        assert len(told) <= 2
        assert {name for name in views.of if views.of[name] != before[name]} <= told
    views = Views(names(n))
    before = dict(views.of)
    told = views.join("new")
    require_views(views)
    assert told >= {name for name in before if views.of[name] != before[name]}
    assert len(told) == 2


@pytest.mark.parametrize(("start", "joins"), [(10, 50), (100, 50), (200, 45)])
def test_ten_thousand_random_steps_keep_the_invariant(start: int, joins: int) -> None:
    coins = Coins.seeded(bytes(32)).derive(f"views {start}")
    views = Views(names(start))
    for step in range(STEPS):
        if len(views.of) <= 2 or coins.below(100) < joins:
            views.join(f"q{step}")
        else:
            views.leave(list(views.of)[coins.below(len(views.of))])
        n = len(views.of)
        assert all(n / 2 < value <= n for value in views.of.values()), step
        # What the invariant is for: at least one copy of the noise, at most two.
        assert 1 - 1e-9 <= sum(1 / value for value in views.of.values()) < 2
    require_views(views)


@pytest.mark.parametrize("gamma", [1.0, 2 / 3, 0.5])
@pytest.mark.parametrize("lost", [0, 1, 3])
def test_the_honest_survivors_views_give_a_whole_noise(gamma: float, lost: int) -> None:
    coins, founders = Coins.seeded(bytes(32)).derive("honest"), tuple(names(12))
    members, steps = list(founders), list[tuple[str, bool]]()
    for step in range(200):
        if len(members) <= 8 or coins.below(2):
            members.append(f"q{step}")
            steps.append((f"q{step}", True))
        else:
            steps.append((members.pop(coins.below(len(members))), False))
        if step % 10 or len(members) - lost <= dishonest(len(members), gamma):
            continue
        left = honest_survivors(len(members), len(members) - lost, gamma)
        setting = SumSetup(tuple(members), 1, options={"views": True}, founders=founders, steps=tuple(steps))
        own = sorted((PROTOCOL.honest_of(setting, name, left) for name in members), reverse=True)
        assert sum(Fraction(1, each) for each in own[:left]) >= 1  # of those who add least
        assert own[-1] > left / 2 - 1  # at most twice the noise, but for rounding to whole sites


def groups_hold(groups: Groups) -> None:
    sizes = [len(segment) for segment in groups.segments]
    assert max(sizes) < 2 * groups.width
    assert len(sizes) == 1 or min(sizes) >= groups.width


@pytest.mark.parametrize("width", [2, 3, 16])
def test_groups_start_within_their_sizes(width: int) -> None:
    for n in range(2, 200):
        groups_hold(Groups(names(n), width))
        assert Groups(names(n), width).parties == tuple(names(n))


@pytest.mark.parametrize(("start", "width", "joins"), [(8, 2, 50), (60, 3, 50), (150, 16, 48)])
def test_ten_thousand_random_steps_rekey_no_more_than_the_bound(start: int, width: int, joins: int) -> None:
    coins = Coins.seeded(bytes(32)).derive(f"groups {start}")
    groups = Groups(names(start), width)
    links = {name: set(groups.neighbours(name)) for name in groups.parties}
    members = list(groups.parties)
    worst = 0
    for step in range(STEPS):
        if len(members) <= 3 or coins.below(100) < joins:
            moved = f"q{step}"
            members.append(moved)
            changed = groups.join(moved)
            assert len(changed) <= 3 * (2 * width - 1)
        else:
            moved = members.pop(coins.below(len(members)))
            changed = groups.leave(moved)
        worst = max(worst, len(changed))
        groups_hold(groups)
        if step % 50 == 0 or step < 200:  # whoever is not named has the same neighbours as before
            now = {name: set(groups.neighbours(name)) for name in groups.parties}
            assert sorted(now) == sorted(members)
            if step and step < 200:
                assert {name for name in now.keys() & links.keys() if now[name] != links[name]} == changed
            assert all(name in now[other] for name in now for other in now[name])
            links = now
    assert worst <= max_rekeyed(width)


def is_connected(groups: Groups, gone: set[str]) -> bool:
    left = [name for name in groups.parties if name not in gone]
    if not left:
        return True
    seen, todo = {left[0]}, [left[0]]
    while todo:
        for other in groups.neighbours(todo.pop()):
            if other not in gone and other not in seen:
                seen.add(other)
                todo.append(other)
    return len(seen) == len(left)


@pytest.mark.parametrize(("n", "width"), [(10, 2), (11, 2), (12, 2), (13, 2)])
def test_no_coalition_within_the_tolerance_isolates_anybody(n: int, width: int) -> None:
    """Exhaustive up to the tolerance; two whole segments, not side by side, are what it takes."""
    groups = Groups(names(n), width)
    assert len(groups.segments) > 3
    t = groups.tolerance()
    assert t >= 2 * width - 1
    for size in range(t + 1):
        for coalition in itertools.combinations(groups.parties, size):
            assert is_connected(groups, set(coalition))
    two = set(groups.segments[0]) | set(groups.segments[2])
    assert not is_connected(groups, two)


@pytest.mark.parametrize("size", [5, 6, 7])
def test_a_random_coalition_isolates_no_more_often_than_the_bound(size: int) -> None:
    """Exhaustive over all coalitions of one size; the bound is not empty, and not far off."""
    groups = Groups(names(11), 2)
    coalitions = list(itertools.combinations(groups.parties, size))
    exact = sum(not is_connected(groups, set(coalition)) for coalition in coalitions) / len(coalitions)
    assert 0 < exact <= groups.isolation_chance(size / 11) < 40 * exact


def test_up_to_three_segments_everybody_shares_a_key_with_everybody() -> None:
    for n in (2, 5, 31, 45):
        groups = Groups(names(n))
        assert len(groups.segments) <= 3
        assert all(len(groups.neighbours(name)) == n - 1 for name in groups.parties)
        assert groups.tolerance() == n - 2


def test_large_rosters_keep_few_neighbours() -> None:
    groups = Groups(names(10_000))
    assert max(len(groups.neighbours(name)) for name in groups.parties[::97]) <= 3 * 31
    assert groups.tolerance() >= 31
    assert groups.isolation_chance(1 / 3) < 2**-33


def test_bad_steps_are_refused() -> None:
    for wrong in (lambda: Views(["a", "a"]), lambda: Groups(["a", "a"]), lambda: Groups(["a", "b"], 1)):
        with pytest.raises(ConfigError):
            wrong()
    views, groups = Views(["a", "b"]), Groups(["a", "b"])
    for step in (views.join, groups.join):
        with pytest.raises(ConfigError):
            step("a")
    for step in (views.leave, groups.leave):
        with pytest.raises(ConfigError):
            step("c")
    views.leave("a")
    assert views.leave("b") == set()
