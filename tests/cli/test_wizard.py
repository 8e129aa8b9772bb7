"""`blindbayes study init` asks: what it writes, what it asks again, what it leaves alone."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from blindbayes.cli import root
from blindbayes.cli.commands import wizard
from blindbayes.cli.drafts import template
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.net.identity import Identity, pin
from blindbayes.protocols import registry
from blindbayes.study.file import StudyFile
from blindbayes.study.tasks import registry as tasks
from blindbayes.study.tasks.traits import Standing

NAMES = ("north", "south", "west")
CARDS = [f"{name}/card.toml" for name in NAMES]
BOOK = ["new", "outcome", "no, yes", "", "sex", "f, m", "", "age", "0 to 120 by 1", "12", "y", "", ""]
DEFAULTS = [""] * 5  # shared rows, everybody brings some, protocol, exact, no more settings; then write
HAPPY = ["", "Readmission", *BOOK, *CARDS, "", *DEFAULTS, ""]
MORE = [*HAPPY[:-2], "y", *[""] * 9, ""]  # thresholds, quorum, host, model, deadlines


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in NAMES:
        (tmp_path / name).mkdir()
        Identity.create(tmp_path / name, name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(arguments: Sequence[str], answers: Sequence[str] = ()) -> Result:
    return CliRunner().invoke(root, ["study", *arguments], input="".join(f"{answer}\n" for answer in answers))


def ask(answers: Sequence[str], *arguments: str) -> Result:
    return call(["init", "--ask", *arguments], answers)


def files(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()} - set(NAMES)


def test_defaults_give_a_study_that_check_accepts_and_a_codebook(place: Path) -> None:
    done = ask(HAPPY)
    assert done.exit_code == 0, done.output
    assert "Error" not in done.output
    assert call(["check", "study.toml"]).exit_code == 0
    study = StudyFile.from_toml("study.toml")
    assert study.names == study.contributors == NAMES
    assert (study.title, study.protocol, study.privacy.epsilon, study.study.limits.quorum) == (
        "Readmission",
        "masked_sum",
        None,
        None,
    )
    assert (study.study.limits.min_parties, study.study.limits.min_rows) == (3, 10)
    expected = Codebook(
        "outcome", ("no", "yes"), (Categorical("sex", ("f", "m")), Numeric("age", 0, 120, bins=12, optional=True))
    )
    assert study.book == expected == Codebook.from_toml("codebook.toml")
    assert CliRunner().invoke(root, ["codebook", "check", "codebook.toml"]).exit_code == 0
    assert files(place) == {"study.toml", "codebook.toml"}


def test_the_study_is_commented_and_stays_so_when_signed(place: Path) -> None:
    assert ask(HAPPY).exit_code == 0
    signed = StudyFile.from_toml("study.toml").sign("north", Identity.load(place / "north").signing)
    for text in (Path("study.toml").read_text(), signed.to_toml()):
        for comment in ("# no epsilon: the exact sum is opened", "min_rows = 10 # minimum", "step = 60.0 # seconds"):
            assert comment in text


def test_what_the_wizard_says_is_opened_is_what_check_says(place: Path) -> None:
    more = ["y", "2", "", "0", "", "", "", "3", "", "", "", "", "", "", ""]
    done = ask(["", "T", *BOOK, *CARDS, "", "", "south", "masked_sum", "1", "5000", *more, ""])
    assert done.exit_code == 0, done.output
    study = StudyFile.from_toml("study.toml")
    assert study.contributors == ("north", "west")
    assert study.hosts == {"server": "south"}
    assert (study.privacy.epsilon, study.privacy.expected_rows, study.study.limits.min_cell) == (1.0, 5000, 3)
    assert "south hosts the role server" in done.output
    assert "with noise, epsilon 1: the sum over at least 2 sites, to north, south, west." in done.output


@pytest.mark.parametrize(
    ("at", "wrong", "told"),
    [
        (0, "nowhere/study.toml", "does not exist"),
        (0, "north/card.toml", "exists already"),
        (2, "maybe", "answer one of: file, dictionary, new"),
        (4, "yes", "at least two"),
        (4, "yes, yes", "occurs twice"),
        (5, "0", "a whole number from 1"),
        (6, "Outcome", "differ only in case"),
        (7, "old", "separated by commas"),
        (10, "120 to 0", "low is above high"),
        (11, "1000", "bins must be between"),
        (14, "study.toml", "that is the study file"),
        (15, "absent.toml", "absent.toml is missing"),
        (15, "", "at least two sites"),
        (16, "north/card.toml", "north takes part already"),
        (19, "both", "answer one of: rows, columns"),
        (20, "east", "'east' is not a party"),
        (20, "north, south", "at least two sites need rows"),
        (21, "reference", "answer one of: masked_sum"),
        (22, "0", "epsilon is a positive number"),
        (22, "nan", "epsilon is a positive number"),
        (23, "perhaps", "invalid input"),
        (24, "4", "a whole number from 2 to 3"),
        (25, "-1", "a whole number from 0"),
        (26, "1", "a whole number from 2 to 3"),
        (26, "2", "an exact sum of two parties"),
        (27, "east", "answer one of: north, south, west"),
        (28, "0", "a positive number"),
        (29, "-1", "a positive number"),
        (30, "soon", "give seconds"),
        (32, "9 min", "not shorter than its parts"),
        (33, "perhaps", "invalid input"),
    ],
)
def test_a_wrong_answer_is_asked_again_at_once(place: Path, at: int, wrong: str, told: str) -> None:
    answers = [*MORE]
    answers.insert(at, wrong)
    done = ask(answers)
    assert done.exit_code == 0, done.output
    assert done.output.count("Error") == 1
    assert told in next(line for line in done.output.splitlines() if "Error" in line)
    assert StudyFile.from_toml("study.toml").title == "Readmission"


def test_a_codebook_file_and_a_folder_of_pinned_cards_save_questions(place: Path) -> None:
    for other in NAMES[1:]:
        pin(place / "north", Identity.load(place / other).card)
    Codebook("outcome", ("no", "yes"), (Categorical("sex", ("f", "m")),)).to_toml("mine.toml")
    done = ask(["", "T", "file", "absent.toml", "mine.toml", "north", "", *DEFAULTS, ""])
    assert done.exit_code == 0, done.output
    assert "class column outcome: no, yes" in done.output
    assert StudyFile.from_toml("study.toml").names == NAMES
    assert files(place) == {"study.toml", "mine.toml"}


def test_a_data_dictionary_becomes_a_codebook_and_both_of_its_answers_can_be_mended(place: Path) -> None:
    Path("columns.csv").write_text("name,kind,values,low,high\noutcome,,no|yes,,\nage,numeric,,0,120\n")
    book = ["dictionary", "absent.csv", "outcome", "columns.csv", "klass", "columns.csv", "outcome", ""]
    done = ask(["", "T", *book, *CARDS, "", *DEFAULTS, ""])
    assert done.exit_code == 0, done.output
    assert "does not exist" in done.output
    assert "no row is named 'klass'" in done.output
    assert StudyFile.from_toml("study.toml").book == Codebook.from_toml("codebook.toml")
    assert Codebook.from_toml("codebook.toml").names == ("age",)


def test_without_columns_there_is_a_template_and_the_call_that_finishes(place: Path) -> None:
    study = ["", "four words of title", "new", 'the "class"', "no, yes", "", "", ""]
    more = ["y", "2", "5", "1e-6", "", "4", "30", "5 min", "2 h"]
    done = ask([*study, *CARDS, "", "", "", "masked_sum", "2", "900", *more, ""])
    assert done.exit_code == 0, done.output
    assert files(place) == {"codebook.toml"}
    with pytest.raises(ConfigError, match=r"FILL IN the name of the column.*at least one label"):
        Codebook.from_toml("codebook.toml")
    text = (
        Path("codebook.toml")
        .read_text()
        .replace("FILL IN the name of the column", "sex")
        .replace("values = []", 'values = ["f", "m"]')
    )
    Path("codebook.toml").write_text(text)
    assert Codebook.from_toml("codebook.toml").target == 'the "class"'
    finish = shlex.split(done.output.strip().splitlines()[-1])
    assert finish[:3] == ["blindbayes", "study", "init"]
    assert call(finish[2:]).exit_code == 0
    made = StudyFile.from_toml("study.toml")
    assert made.title == "four words of title"
    assert (made.privacy.epsilon, made.privacy.delta, made.privacy.expected_rows) == (2.0, 1e-6, 900)
    assert (made.study.limits.min_parties, made.study.limits.min_rows, made.study.limits.min_cell) == (2, 5, 4)
    assert (made.deadlines.step, made.deadlines.join, made.deadlines.run) == (30, 300, 7200)


def test_the_commented_lines_of_the_template_are_a_column_too() -> None:
    book = Codebook("outcome", ("no", "yes"), (Categorical("x", ("a",)),))
    text = template(book).replace("values = []", 'values = ["f", "m"]')
    head, numeric = text.split("# A numeric column", 1)
    filled = head + "\n".join(line.removeprefix("# ") for line in numeric.splitlines()[1:])
    assert Codebook.from_dict(tomllib.loads(filled)).names == ("FILL IN the name of the column", "age")


def test_two_sites_are_led_to_an_epsilon(place: Path) -> None:
    done = ask(["", "T", *BOOK, *CARDS[:2], "", "", "", "masked_sum", "exact", "", "", "", ""])
    assert done.exit_code == 0, done.output
    assert "an exact sum of two parties" in done.output
    assert StudyFile.from_toml("study.toml").privacy.epsilon == 1.0


def test_a_papers_protocol_is_taken_by_name_and_refused_for_too_few_sites(place: Path) -> None:
    Codebook("outcome", ("no", "yes"), (Categorical("sex", ("f", "m")),)).to_toml("mine.toml")
    named = ["init", "s.toml", "--title", "T", "--codebook", "mine.toml", "--protocol", "ring_sum"]
    cards = [word for card in CARDS for word in ("--card", card)]
    done = call([*named, *cards[:4], "--epsilon", "1", "--min-parties", "2"])
    assert "ring_sum needs 3 contributors or more" in str(done.exception)
    assert call([*named, *cards]).exit_code == 0
    assert StudyFile.from_toml("s.toml").protocol == "ring_sum"


def test_options_are_not_asked_for(place: Path) -> None:
    Codebook("outcome", ("no", "yes"), (Categorical("sex", ("f", "m")),)).to_toml("mine.toml")
    cards = [word for card in CARDS for word in ("--card", card)]
    given = ["s.toml", "--title", "T", "--codebook", "mine.toml", *cards, "--without-rows", "west", "--epsilon", "0.5"]
    done = ask([""] * 4, *given)  # protocol, rows, more, write
    assert done.exit_code == 0, done.output
    for question in ("Title", "Codebook [", "Card or", "rows or columns", "Sites that bring", "Epsilon, or"):
        assert question not in done.output
    study = StudyFile.from_toml("s.toml")
    assert (study.contributors, study.privacy.epsilon) == (("north", "south"), 0.5)


def test_an_option_that_does_not_fit_an_answer_is_refused_and_not_dropped(place: Path) -> None:
    answers = ["", "T", *BOOK, *CARDS, "", "", "", "", "exact", "1", "", "", ""]
    done = ask(answers, "--delta", "1e-6")
    assert done.exit_code == 0, done.output
    assert "Error: delta is about noise, and does not apply without epsilon" in done.output
    assert (StudyFile.from_toml("study.toml").privacy.epsilon, StudyFile.from_toml("study.toml").privacy.delta) == (1.0, 1e-6)


def test_the_rarer_settings_are_asked_for_together_and_end_up_in_the_study(place: Path) -> None:
    noise = ["1e-6", "party", "400", "0", "0.7"]
    more = ["y", "3", "20", *noise, "3", "5", "west", "0.5", "1e-8", "30", "5 min", "2 h"]
    done = ask(["", "T", *BOOK, *CARDS, "", "", "", "", "2", "900", *more, ""])
    assert done.exit_code == 0, done.output
    study = StudyFile.from_toml("study.toml")
    privacy = study.privacy
    assert (privacy.epsilon, privacy.delta, privacy.expected_rows, privacy.honest_fraction) == (2.0, 1e-6, 900, 0.7)
    assert (privacy.unit, privacy.party_rows) == ("party", 400)
    assert (study.study.limits.min_rows, study.study.limits.quorum, study.study.limits.min_cell) == (20, None, 5)
    assert study.hosts == {"server": "west"}
    assert (study.study.estimation.alpha, study.study.estimation.var_smoothing) == (0.5, 1e-8)
    assert (study.deadlines.step, study.deadlines.join, study.deadlines.run) == (30, 300, 7200)
    assert call(["check", "study.toml"]).exit_code == 0


def test_few_questions_lead_to_a_study(place: Path) -> None:
    """Without the codebook and the cards: what is shared, who brings none, protocol, epsilon, more, write."""
    done = ask(HAPPY)
    after = done.output.split("Compare the words")[1]
    assert sum(line.rstrip().endswith(":") or "]:" in line for line in after.splitlines()) <= 8


# -- columns -----------------------------------------------------------------------------------------------------------

PEOPLE = ["", "Defaults", *BOOK[:8], "0 to 120 by 1", "0", "n", "", "", *CARDS[:2], ""]


def test_two_sites_with_other_columns_of_the_same_people(place: Path) -> None:
    answers = [*PEOPLE, "columns", "0.25", "", "sex", "", "n", "email", "", "5000", "", "", "", ""]
    done = ask(answers)
    assert done.exit_code == 0, done.output
    study = StudyFile.from_toml("study.toml")
    assert (study.study.partition, study.protocol, study.study.aligned, study.study.key) == (
        "columns",
        "joined_sums",
        False,
        ("email",),
    )
    assert study.holdings.holds == {"north": ("sex",), "south": ("age",)}
    assert study.holdings.labelled == ("north",)
    assert study.study.reveal_to == "north"
    assert study.options == {"bounds": {"north": 4096, "south": 5000}, "min_overlap": 10, "queries": 10000}
    assert study.book.variance_floor == 0.25
    assert study.book == Codebook.from_toml("codebook.toml")
    for line in (
        "north holds sex, outcome.",
        "whether at least 10 identifiers match.",
        "the class, to north; at most 10000 people.",
    ):
        assert line in done.output
    assert call(["check", "study.toml"]).exit_code == 0


def test_options_about_columns_are_not_asked_for(place: Path) -> None:
    given = ["--holds", "north=sex", "--holds", "south=age", "--labelled", "north", "--queries", "7", "--reveal-to", "all"]
    done = ask([*PEOPLE, "0.25", "", "", ""], *given, "--n-rows", "40")
    assert done.exit_code == 0, done.output
    for question in ("rows or columns", "Columns of", "class column outcome [", "line up", "Who learns", "may be scored"):
        assert question not in done.output
    study = StudyFile.from_toml("study.toml")
    assert (study.protocol, study.holdings.n_rows, study.study.reveal_to, study.options) == (
        "class_sums",
        40,
        "all",
        {"queries": 7},
    )
    wrong = ask(["T", *CARDS[:2], ""], "other.toml", "--codebook", "codebook.toml", "--holds", "west=sex")
    assert "with a site among north, south" in str(wrong.exception)


def test_rows_that_line_up_and_the_rarer_settings_of_columns(place: Path) -> None:
    done = ask(
        [*PEOPLE, "columns", "", "south", "age", "", "y", "300", "all", "50", "y", "20", "0.5", "30", "5 min", "2 h", ""]
    )
    assert done.exit_code == 0, done.output
    study = StudyFile.from_toml("study.toml")
    assert (study.protocol, study.study.aligned, study.holdings.n_rows) == ("class_sums", True, 300)
    assert study.holdings.holds == {"north": ("age",), "south": ("sex",)}
    assert study.holdings.labelled == ("south",)
    assert (study.options, study.study.limits.min_rows, study.study.estimation.alpha) == ({"queries": 50}, 20, 0.5)
    assert study.deadlines.run == 7200


def test_sites_that_all_know_the_class_may_release_noisy_counts(place: Path) -> None:
    Codebook("outcome", ("no", "yes"), (Categorical("sex", ("f", "m")), Categorical("old", ("n", "y")))).to_toml("mine.toml")
    given = ["init", "study.toml", "--title", "T", "--codebook", "mine.toml", "--epsilon", "0.5"]
    given += ["--protocol", "noisy_histograms"]
    for name, card, held in zip(NAMES[:2], CARDS, ("sex", "old"), strict=False):
        given += ["--card", card, "--holds", f"{name}={held}", "--labelled", name]
    done = call(given)
    assert done.exit_code == 0, done.exception
    study = StudyFile.from_toml("study.toml")
    assert (study.protocol, study.privacy.epsilon, study.hosts) == ("noisy_histograms", 0.5, {"miner": "north"})
    assert study.holdings.labelled == ("north", "south")
    assert call(["check", "study.toml"]).exit_code == 0


def test_sites_that_all_know_the_class_may_keep_shares(place: Path) -> None:
    done = ask([*PEOPLE, "columns", "", "all", "sex", "", "", "40", "", "", "", ""])
    assert done.exit_code == 0, done.output
    study = StudyFile.from_toml("study.toml")
    assert (study.protocol, study.holdings.labelled, study.study.reveal_to) == ("class_sums", ("north", "south"), "all")


def test_what_a_join_can_be_told_besides(place: Path) -> None:
    done = ask([*PEOPLE, "columns", "", "", "", "", "n", "", "", "", "all", "", "y", "first", "100", "", "", "", "", "", ""])
    assert done.exit_code == 0, done.output
    study = StudyFile.from_toml("study.toml")
    assert (study.study.duplicates, study.options["min_overlap"], study.study.key) == ("first", 100, ("id",))
    assert "one bit per pair of parties: whether at least 100 identifiers match" in done.output


@pytest.mark.parametrize(
    ("at", "wrong", "told"),
    [
        (1, "-1", "variance_floor"),
        (2, "west", "answer one of: north, south, all"),
        (3, "weight", "'weight' is not in the codebook; left: sex, age"),
        (4, "sex", "'sex' is held by another site; left: age"),
        (6, "age", "is a column of the codebook"),
        (7, "10", "a whole number from 4096"),
        (9, "west", "answer one of: all, north, south"),
        (10, "0", "a whole number from 1"),
    ],
)
def test_a_wrong_answer_about_columns_is_asked_again(place: Path, at: int, wrong: str, told: str) -> None:
    answers = ["columns", "0.25", "", "sex", "", "n", "email", "", "5000", "", "", "", ""]
    answers.insert(at, wrong)
    done = ask([*PEOPLE, *answers])
    assert done.exit_code == 0, done.output
    assert done.output.count("Error") == 1
    assert told in next(line for line in done.output.splitlines() if "Error" in line)


def test_columns_need_a_codebook_that_is_filled_in_and_has_a_least_variance(place: Path) -> None:
    done = ask(["", "T", "new", "class", "no, yes", "", "", "", *CARDS[:2], "", "columns", ""])
    assert done.exit_code == 0, done.output
    assert files(place) == {"codebook.toml"}
    assert "say who holds which of them" in done.output
    Codebook("outcome", ("no", "yes"), (Numeric("age", 0, 120),)).to_toml("mine.toml")
    refused = ask(["", "T", "file", "mine.toml", *CARDS[:2], "", "columns"])
    assert isinstance(refused.exception, ConfigError)
    assert "add a line such as variance_floor" in str(refused.exception)
    assert files(place) == {"codebook.toml", "mine.toml"}


# -- what is left alone ------------------------------------------------------------------------------------------------


def test_an_existing_study_is_refused_before_any_question(place: Path) -> None:
    Path("study.toml").write_text("mine")
    done = ask(HAPPY, "study.toml")
    assert isinstance(done.exception, ConfigError)
    assert "Title" not in done.output
    assert Path("study.toml").read_text() == "mine"


def test_existing_files_are_never_overwritten(place: Path) -> None:
    for name in ("study.toml", "codebook.toml"):
        Path(name).write_text("mine")
    done = ask(["", "other.toml", "Readmission", *BOOK, "book.toml", *CARDS, "", *DEFAULTS, ""])
    assert done.exit_code == 0, done.output
    assert done.output.count("exists already") == 2
    assert {Path(name).read_text() for name in ("study.toml", "codebook.toml")} == {"mine"}
    assert StudyFile.from_toml("other.toml").book == Codebook.from_toml("book.toml")


def test_a_file_that_appears_during_the_questions_is_kept_and_nothing_else_is_left(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = wizard._tell

    def appear(study: StudyFile) -> None:
        Path("study.toml").write_text("theirs")
        tell(study)

    monkeypatch.setattr(wizard, "_tell", appear)
    done = ask(HAPPY)
    assert isinstance(done.exception, BlindbayesError)
    assert files(place) == {"study.toml"}
    assert Path("study.toml").read_text() == "theirs"


@pytest.mark.parametrize("count", range(len(HAPPY)))
def test_whoever_stops_at_any_question_leaves_nothing_behind(place: Path, count: int) -> None:
    done = ask(HAPPY[:count])
    assert done.exit_code == 1
    assert "Abort" in done.output
    assert files(place) == set()


@pytest.mark.parametrize("written", [0, 1])
def test_an_interrupt_while_writing_leaves_neither_file_nor_draft(
    place: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    replace, calls = os.replace, []

    def stop(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) > written:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", stop)
    assert ask(HAPPY).exit_code == 1
    assert len(calls) == written + 1
    assert files(place) == set()


def test_no_at_the_end_writes_nothing(place: Path) -> None:
    assert ask([*HAPPY[:-1], "n"]).exit_code == 1
    assert files(place) == set()


# -- when it asks --------------------------------------------------------------------------------------------------------


def test_without_a_terminal_a_missing_option_is_an_error_as_ever(place: Path) -> None:
    for arguments, told in (([], "STUDY"), (["s.toml"], "--title"), (["s.toml", "--title", "T"], "--codebook")):
        done = call(["init", *arguments], HAPPY)
        assert done.exit_code == 2
        assert "Missing" in done.output
        assert told in done.output
    assert files(place) == set()


def test_on_a_terminal_it_asks_and_an_interrupt_leaves_nothing(place: Path) -> None:
    ours, theirs = pty.openpty()
    script = "from blindbayes.cli import main; main()"
    child = subprocess.Popen(
        [sys.executable, "-c", script, "study", "init"], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        _read_until(ours, "Study file [study.toml]")
        os.write(ours, b"\n")
        _read_until(ours, "Title")
        for _ in range(8):  # a signal between the prompt and the read is noticed only with the next key, or signal
            time.sleep(0.3)
            child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=5)
                break
        assert child.returncode == 130
    finally:
        child.kill()
        child.wait()
        os.close(ours)
    assert files(place) == set()


def _read_until(handle: int, text: str) -> None:
    seen, end = "", time.monotonic() + 40
    while text not in seen:
        assert select.select([handle], [], [], max(0.0, end - time.monotonic()))[0], f"no {text!r} in {seen!r}"
        seen += os.read(handle, 4096).decode()


# -- what it says of the protocols ------------------------------------------------------------------------------------------


def test_every_protocol_that_protects_is_offered_and_its_line_names_its_learners() -> None:
    offered = tasks.known("rows", (Standing.OFFERED,))
    assert set(offered) == {*registry.ROWS, "private_ratio"} - {"reference"}
    setting = registry.SumSetup(NAMES, 4)
    for name, line in ((name, tasks.task_class(name).description) for name in offered if name in registry.known()):
        learners = set(registry.load(name).learners(setting))
        assert ("every site learn" in line.lower()) == (set(NAMES) <= learners), name
        for role in learners - set(NAMES):
            assert f"the {role}" in line.lower(), name
        assert ("Only the" in line) == (len(learners) == 1), name


# -- options on the command line --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--protocol", "oblivious_sum", "--option", "scheme=ristretto"], None),
        (["--option", "neighbours=3"], "unknown protocol option 'neighbours'"),
        (["--option", "publish=many"], "the option publish is true or false"),
        (["--queries", "5"], "--queries is for studies over columns"),
        (["--bound", "north=9"], "--bound is for studies over columns"),
        (["--reveal-to", "north"], "--reveal-to is for studies over columns"),
        (["--expected-rows", "900"], "without epsilon"),
        (["--delta", "0.000001"], "without epsilon"),
        (
            ["--holds", "north=sex,age", "--labelled", "south", "--quorum", "2", "--queries", "5"],
            "--quorum is for studies over rows",
        ),
    ],
)
def test_every_option_is_passed_on_or_refused(place: Path, more: list[str], told: str | None) -> None:
    """An option that is dropped silently makes another study than people think they agreed on."""
    assert ask(HAPPY).exit_code == 0
    cards = [word for card in CARDS for word in ("--card", card)]
    done = call(["init", "other.toml", "--title", "T", "--codebook", "codebook.toml", *cards, *more])
    if told is None:
        assert done.exit_code == 0, done.output
        assert StudyFile.from_toml("other.toml").options == {"scheme": "ristretto"}
    else:
        assert isinstance(done.exception, BlindbayesError), done.output
        assert told in str(done.exception)
        assert not Path("other.toml").exists()
