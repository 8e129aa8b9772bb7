"""`blindbayes study init`: a flag for every setting and option; every fault at once, with the flag that mends it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from blindbayes.cli import root
from blindbayes.cli.commands.study import init
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.net.identity import Identity
from blindbayes.protocols import registry
from blindbayes.study.agreement import Holdings
from blindbayes.study.fields import Deadlines, Estimation, Limits, Privacy
from blindbayes.study.file import StudyFile
from blindbayes.study.settings import option_lines
from blindbayes.study.tasks import registry as tasks

NAMES = ("north", "south", "west")
CARDS = [word for name in NAMES for word in ("--card", f"{name}/card.toml")]
HOLDS = ["--holds", "north=sex", "--holds", "south=age", "--labelled", "north"]
JOIN = [*HOLDS, "--key", "email", "--queries", "7"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in NAMES:
        (tmp_path / name).mkdir()
        Identity.create(tmp_path / name, name)
    monkeypatch.chdir(tmp_path)
    Codebook("outcome", ("no", "yes"), (Categorical("sex", ("f", "m")), Numeric("age", 0, 120, bins=12))).to_toml("book.toml")
    Codebook("outcome", ("no", "yes"), (Categorical("sex", ("f", "m")), Numeric("age", 0, 120))).to_toml("gaussian.toml")
    return tmp_path


def call(more: Sequence[str] = (), cards: Sequence[str] = CARDS, book: str = "book.toml") -> Result:
    given = ["study", "init", "study.toml", "--title", "Readmission", "--codebook", book, *cards, *more]
    return CliRunner().invoke(root, given)


def made(more: Sequence[str] = (), cards: Sequence[str] = CARDS, book: str = "book.toml") -> StudyFile:
    done = call(more, cards, book)
    assert done.exit_code == 0, (done.output, done.exception)
    return StudyFile.from_toml("study.toml")


def refused(more: Sequence[str] = (), cards: Sequence[str] = CARDS, book: str = "book.toml") -> str:
    done = call(more, cards, book)
    assert isinstance(done.exception, BlindbayesError), (done.output, done.exception)
    assert not Path("study.toml").exists()
    return str(done.exception)


def flags() -> dict[str, click.Parameter]:
    return {str(each.name): each for each in init.get_params(click.Context(init))}


# -- flags -------------------------------------------------------------------------------------------------------------------


def test_every_setting_of_a_study_has_a_flag_with_its_sentence() -> None:
    known = flags()
    groups = {"privacy": Privacy, "limits": Limits, "estimation": Estimation, "deadlines": Deadlines, "columns": Holdings}
    for section, group in groups.items():
        for name in group.__struct_fields__:
            assert name in ("holds", "candidates") or f"{section}__{name}" in known, name
    assert {"study__key", "study__duplicates", "study__reveal_to", "study__changed_by", "hosts", "holds"} <= set(known)


@pytest.mark.parametrize("protocol", tasks.names())
def test_every_option_of_every_protocol_has_a_flag_and_a_line(protocol: str) -> None:
    params, known = tasks.task_class(protocol).params, flags()
    for name, line in option_lines(params).items():
        flag = known[f"options__{name}"]
        assert isinstance(flag, click.Option)
        assert protocol in (flag.help or "")
        assert line.replace("`", "") in (flag.help or "")
        assert line != "see its page"


def test_choices_that_two_protocols_name_alike_are_all_choices_of_the_flag() -> None:
    kind = flags()["options__opening"].type
    assert isinstance(kind, click.Choice)
    assert set(kind.choices) == {"coarse", "noisy", "fine", "shares", "printed"}


def test_flags_end_up_in_the_study() -> None:
    noise = ["--epsilon", "2", "--delta", "1e-6", "--unit", "party", "--party-rows", "400", "--honest-fraction", "0.7"]
    more = ["--min-rows", "20", "--min-cell", "5", "--quorum", "3", "--alpha", "0.5", "--class-weight", "yes=3"]
    rest = ["--host", "server=west", "--step-seconds", "30", "--changed-by", "north", "--no-publish", "--tuning-note", "by eye"]
    study = made([*noise, *more, *rest])
    assert study.privacy == Privacy(
        epsilon=2.0, delta=1e-6, unit="party", party_rows=400, honest_fraction=0.7, tuning_note="by eye"
    )
    assert study.study.limits == Limits(min_rows=20, min_cell=5, quorum=3)
    assert study.study.estimation == Estimation(alpha=0.5, class_weight={"yes": 3})
    assert (study.hosts, study.deadlines, study.changed_by) == ({"server": "west"}, Deadlines(step=30), ("north",))
    assert study.options == {"publish": False}


def test_the_shortest_call_gives_a_commented_study_that_check_accepts() -> None:
    study = made()
    assert (study.names, study.contributors, study.protocol) == (NAMES, NAMES, "masked_sum")
    assert study.study.limits == Limits()
    signed = study.sign("north", Identity.load(Path("north")).signing)
    for text in (Path("study.toml").read_text(), signed.to_toml()):
        for comment in ("# no epsilon: the exact sum is opened", "min_rows = 0 # minimum", "step = 60.0 # seconds"):
            assert comment in text
    assert CliRunner().invoke(root, ["study", "check", "study.toml"]).exit_code == 0


def test_rows_that_line_up_make_class_sums_and_others_a_join_with_what_sites_ask_for() -> None:
    aligned = made([*HOLDS, "--n-rows", "40", "--queries", "7"], CARDS[:4])
    assert (aligned.protocol, aligned.holdings.n_rows, aligned.study.limits.min_cell) == ("class_sums", 40, 10)
    Path("study.toml").unlink()
    joined = made([*JOIN, "--bound", "north=4096", "--bound", "south=5000"], CARDS[:4])
    assert (joined.protocol, joined.study.key, joined.study.duplicates) == ("joined_sums", ("email",), "first")  # type: ignore[union-attr]
    assert joined.options == {"bounds": {"north": 4096, "south": 5000}, "min_overlap": 10, "queries": 7}


def test_a_papers_protocols_are_taken_by_name() -> None:
    assert made(["--protocol", "ring_sum", "--rings", "1"]).options == {"rings": 1}
    Path("study.toml").unlink()
    given = ["--protocol", "noisy_histograms", "--epsilon", "0.5", *HOLDS, "--labelled", "south"]
    study = made(given, CARDS[:4])
    assert (study.privacy.epsilon, study.hosts, study.holdings.labelled) == (0.5, {"miner": "north"}, ("north", "south"))


# -- refusals ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "told", "flag"),
    [
        (["--neighbours", "3"], "unknown protocol option 'neighbours'", "--neighbours"),
        (["--queries", "5"], "unknown protocol option 'queries'", "--queries"),
        (["--bound", "north=9"], "unknown protocol option 'bounds'", "bounds"),
        (["--reveal-to", "north"], "reveal_to does not apply to a study over rows", "--reveal-to"),
        (["--n-rows", "5"], "n_rows does not apply to a study over rows", "--n-rows"),
        (["--key", "id"], "key does not apply to a study over rows", "--key"),
        (["--expected-rows", "900"], "without epsilon", "--expected-rows"),
        (["--delta", "0.000001"], "without epsilon", "--delta"),
        ([*HOLDS, "--n-rows", "5", "--quorum", "2", "--queries", "5"], "quorum does not apply", "--quorum"),
        ([*HOLDS, "--n-rows", "5", "--without-rows", "north", "--queries", "5"], "without_rows does not", "--without-rows"),
        ([*HOLDS, "--n-rows", "5"], "how many instances may be classified", "--queries"),
        ([*HOLDS, "--n-rows", "5", "--queries", "0"], "queries is a whole number, at least 1", "--queries"),
        (["--protocol", "class_sums", *HOLDS, "--queries", "5"], "how many rows do the tables have?", "n_rows"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_flag(more: list[str], told: str, flag: str) -> None:
    """A flag that is dropped silently makes another study than people think they agreed on."""
    text = refused(more, CARDS[:4] if "--holds" in more else CARDS)
    assert told in text
    assert flag in text


def test_every_fault_is_reported_at_once() -> None:
    text = refused([*HOLDS, "--bound", "north=1024", "--alpha", "-1", "--min-rows", "-5"], CARDS[:4], "gaussian.toml")
    for told in (
        "alpha must be a positive number and var_smoothing must not be negative (--alpha)",
        "min_rows is a whole number, at least 0 (--min-rows)",
        "padded to, 4,096 to",
        "bounds give no number for south: say what identifiers are padded to, from 4,096 (--bound)",
        "or key (--key)",
        "a model in shares needs variance_floor in the codebook",
        "how many instances may be classified in all? Sites refuse a study without a limit (--queries)",
    ):
        assert told in text
    assert len(text.splitlines()) == 8


@pytest.mark.parametrize(
    "more",
    [
        ["--protocol", "private_ratio", "--queries", "0", "--alpha", "-1"],
        ["--protocol", "private_ratio"],
        ["--protocol", "ring_sum", "--quorum", "2", "--min-cell", "3"],
        ["--queries", "3", "--n-rows", "5"],
    ],
)
def test_a_study_over_rows_is_never_told_about_columns(more: list[str]) -> None:
    assert "column" not in refused(more, book="gaussian.toml")


def test_a_fault_that_only_another_site_mends_names_its_card() -> None:
    text = refused(cards=CARDS[:4])
    assert "at least 3" in text
    assert "(--card)" in text


def test_what_is_missing_is_listed_and_nothing_is_overwritten() -> None:
    done = CliRunner().invoke(root, ["study", "init", "study.toml", "--codebook", "book.toml", *CARDS])
    assert done.exit_code == 2
    assert "Missing option '--title'" in done.output
    Path("study.toml").write_text("mine")
    assert isinstance(call().exception, ConfigError)
    assert Path("study.toml").read_text() == "mine"


# -- what it says of the protocols ------------------------------------------------------------------------------------------


def test_the_line_of_a_protocol_names_its_learners() -> None:
    setting = registry.SumSetup(NAMES, 4)
    for name in (name for name in registry.ROWS if not tasks.task_class(name).restricted):
        line, learners = tasks.task_class(name).description, set(registry.load(name).learners(setting))
        assert ("every site learn" in line.lower()) == (set(NAMES) <= learners), name
        for role in learners - set(NAMES):
            assert f"the {role}" in line.lower(), name
