"""Every setting of the files that people write, described once.

From here come the comments in study.toml and site.toml, the help of `study init`, its questions, and docs/settings.md
(`blindbayes settings`). Names, types and defaults stand in the structs of the files: `study.file`, `site.config`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tomlkit.container import Container

OVER = {
    "": "",
    "rows": "over rows: ",
    "columns": "over columns: ",
    "aligned": "over columns whose rows line up: ",
    "keyed": "over columns that do not line up: ",
    "shares": "over columns in shares: ",
    "noise": "with epsilon: ",
}


class Setting(NamedTuple):
    """What a setting is: in a line, where it applies, and at length for the page; how the wizard asks, what it says before."""

    doc: str
    over: str = ""
    more: str = ""
    question: str = ""
    before: str = ""

    @property
    def line(self) -> str:
        """In one line of plain text."""
        return (OVER[self.over] + self.doc).replace("`", "")

    @property
    def sentence(self) -> str:
        return self.line[:1].upper() + self.line[1:].rstrip(".") + "."

    @property
    def paragraph(self) -> str:
        return OVER[self.over] + self.doc + (f". {self.more}" if self.more else "")


SECTIONS = {  # what the page says above a file, or above a table of it
    "site.courier": "Only where an installed package of your own carries the frames (entry point `blindbayes.couriers`).",
    "site.carrier": "Only where an engine (NVIDIA FLARE, Flower) carries the frames; see the page on engines.",
    "site.tls": "Only for a consortium with a certificate authority. The pins stay; all its sites set this, or none.",
    "site.policy": "The defaults are the strict ones. What is not allowed here does not run, whoever asks.",
    "study": "`blindbayes study init` writes it; its hash covers everything but the signatures and the changes of the roster.",
    "study.columns": 'Only with `kind = "columns"` or `"join"`. `options.queries`, the number of instances that may ever be '
    "classified, is\nasked for by every site's policy; `options.audit_rate` is the share of dummies that catch edited tables "
    "and other comparisons; `joined_sums` also\nneeds `options.bounds`, what each party's number of identifiers is padded to.",
}
SETTINGS = {
    # -- site.toml: the site decides -----------------------------------------------------------------------------------
    "site.listen": Setting("host:port for the other sites; without it this site only dials out"),
    "site.operator": Setting("host:port for this site's own people; loopback only"),
    "site.metrics": Setting(
        "one more host:port, for `/healthz`, `/readyz` and `/metrics` alone; the last asks for the token in metrics.token"
    ),
    "site.ledger": Setting("the site's own record of privacy spent"),
    "site.journal_quota_mb": Setting("how much a run may keep on disk"),
    "site.proxy": Setting("host:port of an HTTP proxy through which other sites, or the relay, are dialled"),
    "site.min_free_mb": Setting("no run begins with less free space than this for the site's folder"),
    "site.keep_releases_days": Setting("releases older than this are removed, and the log says so; none keeps all"),
    "site.rows.source": Setting(
        "a path (relative to the site's folder): CSV, TSV (packed or not), Parquet or Excel; or a database URL, "
        "`spark://host:7077` or `sc://host:15002`"
    ),
    "site.rows.name": Setting(
        "the name of these rows: exact sums of a table are made over one set of sites, for good",
        more="Give new rows that are in no earlier table, such as next year's admissions, a name of their own. A table that "
        "lost, gained or changed some rows is the same table and keeps its name. Each name stands in the audit log",
    ),
    "site.rows.table": Setting("the table of a database, or the sheet of a workbook"),
    "site.rows.extra_columns": Setting("`ignore` leaves columns unread that the codebook does not know"),
    "site.rows.delimiter": Setting("of a text file: one character; none takes what its header shows"),
    "site.rows.quote": Setting("of a text file: what stands around a cell"),
    "site.rows.encoding": Setting("of a text file, such as `latin-1`; none takes UTF-8, or what its first bytes say"),
    "site.rows.decimal": Setting(
        "of a text file: `,` where numbers have a decimal comma. It is declared, since no row may say how others are read"
    ),
    "site.rows.names": Setting("of a text file without a header row: its columns"),
    "site.rows.map": Setting("columns made of the table's own, under `[rows.map]`; see the page on reading tables"),
    "site.rows.spark": Setting(
        "settings of the Spark session, under `[rows.spark]`, such as `spark.master`; see the page on reading tables"
    ),
    "site.relay.card": Setting("the relay's card"),
    "site.relay.sites": Setting("the sites that are reached through it"),
    "site.courier.name": Setting("the courier, by the name that its package gives it"),
    "site.courier.options": Setting("what it is told when it is made"),
    "site.carrier.socket": Setting("the socket file where the engine's process meets this agent"),
    "site.carrier.latency": Setting("what one message takes: `milliseconds` (FLARE) or `seconds` (Flower)"),
    "site.carrier.sites": Setting("the other sites' names in the engine, where they differ"),
    "site.tls.authority": Setting("PEM file of the authority's certificates"),
    "site.tls.certificate": Setting("PEM chain for this site's own key, made from `blindbayes site request`"),
    "site.policy.protocols": Setting("the protocols that may run"),
    "site.policy.min_parties": Setting(
        "fewest sites in a sum, or in a model of rows in shares", "rows", "Over columns nothing is opened, and two will do"
    ),
    "site.policy.min_rows": Setting("fewest rows of this site in a sum, or in training over columns"),
    "site.policy.exact_sums": Setting("`false`: no sum, and no model of rows in shares, without epsilon"),
    "site.policy.changed_data": Setting(
        "allow an exact sum over rows that changed since the table's last one, over the same sites",
        more="The difference of the two sums shows how the rows of all these sites changed together, and where the others' did "
        "not, how this site's did",
    ),
    "site.policy.max_epsilon_per_run": Setting("largest epsilon of one run; the total stands in the ledger"),
    "site.policy.max_delta_per_run": Setting("likewise"),
    "site.policy.max_runs_per_day": Setting("runs begun in 24 hours; classifications are limited by the query budget instead"),
    "site.policy.max_running": Setting("runs at the same time"),
    "site.policy.max_idle_joins_per_day": Setting(
        "runs in 24 hours that one other site begins here and that end before anything is computed"
    ),
    "site.policy.max_queries": Setting(
        "the most that `options.queries` may ask for",
        "columns",
        "A study that does not limit its queries is refused",
    ),
    "site.policy.min_overlap": Setting(
        "the least that `options.min_overlap` must ask for; 0 for any",
        "keyed",
        "A model over one common person tells whether this site has that person",
    ),
    "site.policy.noise_in_shares": Setting(
        "`true` refuses a study without an epsilon",
        "shares",
        "Without one, a site that makes its table up (one person's values, null or alike for everybody else) reads that "
        "person's class from a few answers",
    ),
    "site.policy.min_cell": Setting(
        "the least that `limits.min_cell` must ask for in a study without an epsilon, or with one above 3; 0 for any",
        "shares",
        "Without either, a site with one value for each person in a column of its own reads everybody's class, one answer "
        "each. It is no differential privacy: against a table that was made up set `noise_in_shares`",
    ),
    "site.policy.min_audit_rate": Setting(
        "the least that `options.audit_rate` must ask for",
        "shares",
        "It is the share of dummies among look-ups and comparisons by which a party that answers out of other tables than it "
        "signed, or compares otherwise, is caught",
    ),
    "site.policy.max_overlap_bits_per_day": Setting(
        "how often in 24 hours one other site is told whether at least `min_overlap` identifiers match, or which; 0 for never",
        "keyed",
    ),
    "site.policy.reveal_matches": Setting(
        "let another site learn whom of its people this site has too", "keyed", 'By scope shared, or `reveal = "matching"`'
    ),
    "site.policy.approvers": Setting("how many stewards of the site's people.toml must say yes to a study; 2 for four eyes"),
    "site.policy.min_colluders": Setting(
        "how many sites a study must bear that pool what they saw and learn nothing of the others",
        "rows",
        "The host of whoever opens the sum is among them",
    ),
    "site.policy.weaker_options": Setting(
        "allow options that make a study weaker than its protocol is without them",
        more="Such as few `neighbours` of chain_sum",
    ),
    "site.policy.require_all_signatures": Setting("approve only what every party has signed"),
    # -- study.toml: all parties sign ----------------------------------------------------------------------------------
    "study.title": Setting("what people call it", question="Title of the study, as people will call it"),
    "study.kind": Setting(
        "`rows`: parties hold different records of the same columns; `columns`: different columns of the same records, in the "
        "same order; `join`: different columns, and rows are matched by an identifier",
        question="Do the sites share rows or columns",
        before="rows: each site has other people, in the same columns. columns: each has other columns of the same people.",
    ),
    "study.protocol": Setting(
        "how it is computed, and so who learns what; `blindbayes study check` says who",
        more="See [the protocols](protocols/index.md)",
        question="Protocol",
        before="How the sites' sums are added up, and who learns what:",
    ),
    "study.options": Setting("options of the protocol, as its page lists them"),
    "study.codebook": Setting("the codebook itself"),
    "study.reveal_to": Setting(
        "who learns the class of a classified instance: all, or one party",
        "columns",
        question="Who learns the class (a site, or all)",
    ),
    "study.key": Setting(
        "the identifier columns, if the codebook has no `[identifier]`",
        "keyed",
        question="Columns of the identifier, in every site's table",
        before="Identifiers must be written alike at every site; a recipe in the codebook ([identifier]) sees to it.",
    ),
    "study.duplicates": Setting(
        "rows of one identifier: `join` counts every pair, `first` takes the first, `reject` stops the run",
        "keyed",
        question="Duplicates",
    ),
    "study.hosts": Setting(
        "who runs the roles that no contributor fills, such as `server`",
        question="Who hosts the role {seat}",
        before="Roles that no contributor fills; whoever runs one sees what the protocol's page says.",
    ),
    "study.changed_by": Setting(
        "whose signatures a change of the roster needs, besides a newcomer's; none: those of every member that stays", "rows"
    ),
    "study.changes": Setting(
        "changes of the roster, each on top of the one before; outside the study's hash, with hashes of their own",
        "rows",
        "`study roster change` writes them; see [a living consortium](how-to/consortium.md)",
    ),
    "study.signatures": Setting("who agreed; outside the hash"),
    "study.format": Setting("the version of the file"),
    "study.columns.holds": Setting(
        "table `[columns.holds]`: party = its features; `[]` for a party that has the class alone",
        question="Columns of {name}, separated by commas",
    ),
    "study.columns.labelled": Setting(
        "the parties that have the class column; the first acts for it",
        question="Who has the class column {target} (a site, or all)",
    ),
    "study.columns.n_rows": Setting("how many rows there are, which is public", "aligned", question="Number of rows"),
    "study.parties.name": Setting("the site's name"),
    "study.parties.identity": Setting("its public key, from its card"),
    "study.parties.key": Setting("its X25519 public key, from its card: for protocols whose keys stand over many runs"),
    "study.parties.contributes": Setting(
        "`false`: it brings no rows, and may host a role",
        question="Sites that bring no rows (names; Return: none)",
        before="A site without rows may host a role, such as the server, and is no contributor.",
    ),
    "study.privacy.epsilon": Setting(
        "privacy loss of one run: smaller hides more; without it what is opened is exact",
        more="Over columns in shares: of all answers that the model ever gives, by noise of every party in the shares",
        question="Epsilon, or exact",
        before="epsilon: noise hides any one record in the sum; smaller hides more, 1 is common. Each run spends it.",
    ),
    "study.privacy.delta": Setting(
        "chance that epsilon does not hold; 0 for none",
        question="Delta",
        before="Delta is the chance that epsilon does not hold: 0, or far below one over the number of people.",
    ),
    "study.privacy.label_epsilon": Setting(
        "the class holder randomises its labels once; `false` for none, by default twice epsilon",
        "shares",
        more="Bounds the odds between two classes of a person by e^`label_epsilon`, whatever the other parties' software sends"
        ", in all trainings on the same labels and all answers together. With or without `epsilon`; at most 12. The class "
        "holder's ledger pays half of it once per table of labels, which an `epsilon` as large covers",
    ),
    "study.privacy.unit": Setting(
        "whom epsilon protects: one `record` (a row, not a person), or all rows of a `party`",
        more="`person` in older files is `record`",
        question="Whom epsilon protects",
        before="Epsilon protects one record; or a person, of whom each site counts a few rows, by the codebook's identifier; "
        "or all records of a party: that takes far more noise.",
    ),
    "study.privacy.party_rows": Setting(
        'with `unit = "party"`: the largest party\'s size', question="Most rows of any party, publicly known"
    ),
    "study.privacy.rows_per_person": Setting(
        "a site counts so many rows of a person, drawn at random; epsilon protects them together",
        more="By the codebook's identifier. A person with rows at k sites loses up to k times epsilon",
        question="Most rows of a person that a site counts",
    ),
    "study.privacy.tuning_note": Setting("how settings were chosen; the statement says so, and that it was not checked"),
    "study.privacy.expected_rows": Setting(
        "rows of all parties together, about, as publicly known: how fine the noisy tables are",
        "noise",
        question="Rows of all sites together, about (Return: unknown)",
        before="How fine the noisy tables are depends on the number of rows: a public figure or a guess, never the true count.",
    ),
    "study.privacy.honest_fraction": Setting(
        "the fraction of parties assumed to add their noise",
        question="Share of parties that add their noise",
        before="Noise is made for the case that the other parties add none, or tell theirs.",
    ),
    "study.limits.min_parties": Setting(
        "fewest parties that bring rows",
        question="Fewest sites that bring rows",
        before="Limits: below them nothing is opened.",
    ),
    "study.limits.min_rows": Setting("fewest rows of each party", question="Fewest rows of each site"),
    "study.limits.quorum": Setting(
        "fewest parties whose sum may be opened",
        question="Fewest sites in an opened sum",
        before="If a site is lost on the way, the sum of the others may still be opened, if that many are left.",
    ),
    "study.limits.min_cell": Setting(
        "noisy counts below it are published as 0; exact sums are never altered",
        "noise",
        "Over columns in shares, with or without `epsilon`: counters below it are set to 0 inside the circuit",
        "Smallest noisy count to publish",
        "Small noisy counts are mostly noise. Those below this number are published as 0; 0 keeps all.",
    ),
    "study.deadlines.step": Setting(
        "seconds that a site may be silent within a step",
        question="How long a site may be silent within a step",
        before="Deadlines, in seconds, or such as 10 min, 1 h, 2 d. A site that misses one counts as lost.",
    ),
    "study.deadlines.join": Setting("seconds until every required party has joined", question="How long sites have to come"),
    "study.deadlines.run": Setting("seconds of the whole run", question="The whole run"),
    "study.estimation.alpha": Setting("Laplace smoothing, added to every count", question="alpha"),
    "study.estimation.var_smoothing": Setting(
        "share of the largest variance that is added to all",
        question="var_smoothing",
        before="The model: alpha is added to every count, var_smoothing times the largest variance to every variance.",
    ),
    "study.estimation.class_weight": Setting(
        "how much more an error in a class costs, by label; a threshold t of two classes is a weight (1 - t) / t"
    ),
    # -- options of protocols that every study over columns has --------------------------------------------------------
    "study.options.queries": Setting(
        "how many instances may be classified, ever",
        "columns",
        "Without epsilon audits are charged too: 64 references per training and party that looks up, and every dummy",
        question="How many people may be scored, in all",
        before="Each score tells a little of the model. Every site counts them, and stops at this number.",
    ),
    "study.options.bounds": Setting(
        "SITE=what its number of identifiers is padded to",
        "keyed",
        question="Most people that {name} has",
        before="Lists are padded, so that nobody learns their length: a public number that each site stays below.",
    ),
    "study.options.min_overlap": Setting(
        "below so many common identifiers the run stops, and only that is told",
        "keyed",
        question="Fewest people in common",
        before="A run over too few common people says much about each. Below this number it stops, and only that is told; "
        "sites refuse a study with less than their policy asks for.",
    ),
}


# The settings of a study by their own name, as the options of `study init` have it.
STUDY = {path.rpartition(".")[2]: found for path, found in reversed(SETTINGS.items()) if path.startswith("study.")}


def line_of(path: str) -> str:
    """The line that stands beside a setting in its file; empty for what is not one."""
    return SETTINGS[path].line if path in SETTINGS else ""


def annotate(document: Any, path: str) -> Any:
    """A TOML document, or a table of it, with a comment to each setting."""
    inner: Any = document if isinstance(document, Container) else document.value
    for name in document:
        if isinstance(document[name], dict):
            annotate(document[name], f"{path}.{name}")
        elif line := line_of(f"{path}.{name}"):
            inner.item(name).comment(line)
    return document


def no_none(value: Any) -> Any:
    """Plain builtins without what is None, which TOML cannot say."""
    if isinstance(value, dict):
        return {key: no_none(item) for key, item in value.items() if item is not None}
    return [no_none(item) for item in value] if isinstance(value, list | tuple) else value
