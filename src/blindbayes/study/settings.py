"""The one description of every setting in study.toml and site.toml.

The comments in both files, the flags of `study init` and docs/settings.md (`blindbayes settings`) are made from it. Names,
types and defaults are those of the structs: `study.file`, `agent.config`. Options of a protocol are described in its params.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_type_hints

import msgspec
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
    """Description of a setting: one line, where it applies, more for the page."""

    doc: str
    over: str = ""
    more: str = ""

    @property
    def line(self) -> str:
        return (OVER[self.over] + self.doc).replace("`", "")

    @property
    def sentence(self) -> str:
        return self.line[:1].upper() + self.line[1:].rstrip(".") + "."

    @property
    def paragraph(self) -> str:
        return OVER[self.over] + self.doc + (f". {self.more}" if self.more else "")


SECTIONS = {  # introductions on the page, by file and table
    "site.courier": "Only where an installed package of your own carries the frames (entry point `blindbayes.couriers`).",
    "site.carrier": "Only where an engine (NVIDIA FLARE, Flower) carries the frames; see the page on engines.",
    "site.notify": "Off without this table: staff are notified when a decision waits. A message holds the title of the study, "
    "who asks and a link to the console, no more.",
    "site.tls": "Only for a consortium with a certificate authority. The pins stay; all its sites set this, or none.",
    "site.sign_in": "Only where staff sign in to the console by an OpenID Connect provider; see the page on sign-in.",
    "site.policy": "The defaults are the strict ones. What is not allowed here does not run.",
    "study": "`blindbayes study init` writes it; its hash covers everything but the signatures and the changes of the roster.",
    "study.columns": 'Only with `kind = "columns"` or `"join"`.',
}
SETTINGS = {
    # -- site.toml: the site decides -----------------------------------------------------------------------------------
    "site.listen": Setting("host:port for the other sites; without it this site only dials out"),
    "site.operator": Setting("host:port for this site's operators; loopback only"),
    "site.metrics": Setting(
        "second host:port that serves only `/healthz`, `/readyz` and `/metrics`; `/metrics` asks for the token in metrics.token"
    ),
    "site.ledger": Setting("the site's own record of privacy spent"),
    "site.journal_quota_mb": Setting("maximum size of a run's journal on disk"),
    "site.proxy": Setting("host:port of an HTTP proxy through which other sites, or the relay, are dialled"),
    "site.min_free_mb": Setting("no run starts with less free disk space than this for the site's folder"),
    "site.keep_releases_days": Setting("releases older than this are deleted, with an entry in the log; none keeps all"),
    "site.rows.source": Setting(
        "a path (relative to the site's folder): CSV, TSV (compressed or not), Parquet or Excel; or a database URL, "
        "`spark://host:7077` or `sc://host:15002`"
    ),
    "site.rows.name": Setting(
        "name of the table; a table takes part in exact sums over one fixed set of sites only",
        more="Give new rows that are in no earlier table, such as next year's admissions, a name of their own. A table that "
        "lost, gained or changed some rows is the same table and keeps its name. The audit log records each name",
    ),
    "site.rows.table": Setting("the table of a database, or the sheet of a workbook"),
    "site.rows.extra_columns": Setting("`ignore` skips columns that the codebook does not declare"),
    "site.rows.delimiter": Setting("separator of a text file, one character; none detects it from the header"),
    "site.rows.quote": Setting("quote character of a text file"),
    "site.rows.encoding": Setting("encoding of a text file, such as `latin-1`; none takes UTF-8, or the byte order mark's"),
    "site.rows.decimal": Setting(
        "decimal separator of a text file: `.` or `,`. It is declared, since no row may decide how others are read"
    ),
    "site.rows.thousands": Setting(
        "separator of thousands in numbers of a text file: `.`, `,`, a blank or an apostrophe; empty for none"
    ),
    "site.rows.missing": Setting("texts that mean no value, in all columns, besides those that the codebook lists"),
    "site.rows.names": Setting("columns of a text file without a header row"),
    "site.rows.map": Setting("columns derived from the table's own, under `[rows.map]`; see the page on reading tables"),
    "site.rows.omop": Setting(
        "schema of the OMOP tables in the database that `source` names, without `table` and `map`; the study's codebook says "
        "what is read from it (`[omop]`)"
    ),
    "site.rows.spark": Setting(
        "settings of the Spark session, under `[rows.spark]`, such as `spark.master`; see the page on reading tables"
    ),
    "site.console.data": Setting(
        "folder whose tables staff can choose in the console, and to which they upload (relative to the site's folder)"
    ),
    "site.console.max_upload_mb": Setting("maximum size of an uploaded table; 0 turns uploads off"),
    "site.console.preview_rows": Setting(
        "number of rows that a steward can see on the page Table, up to 20; 0 turns the preview off",
        more="Each preview is an entry in the audit log. Its cells are sent to that steward's browser only, and stored nowhere",
    ),
    "site.console.databases": Setting(
        "host:port of each PostgreSQL server that staff may name in the console; none by default",
        more="Staff choose a password by the name of a file in the folder `secrets/`, and never see it",
    ),
    "site.sign_in.issuer": Setting(
        "address of the OpenID Connect provider; https, or http on this machine",
        more="Exactly as in its discovery document. The provider is contacted only when somebody signs in this way",
    ),
    "site.sign_in.client_id": Setting("the console's client at the provider"),
    "site.sign_in.roles": Setting(
        "values of the roles claim, each with the role it gives: steward, officer or analyst",
        more="Under `[sign_in.roles]`. Without a listed value there is no access",
    ),
    "site.sign_in.secret_file": Setting(
        "file with the client's secret, mode 600 (relative to the site's folder); none for a public client"
    ),
    "site.sign_in.roles_claim": Setting("claim of the ID token with the roles; a dot leads into a nested table"),
    "site.sign_in.name_claim": Setting("claim of the ID token with the name for pages and log"),
    "site.sign_in.scope": Setting("scopes that are requested"),
    "site.sign_in.authority": Setting("PEM file of the authority of the provider's certificate; none trusts the system's"),
    "site.sign_in.max_session_minutes": Setting(
        "maximum length of a session; it ends with the ID token if that is sooner, and is never refreshed"
    ),
    "site.sign_in.first_approval_hours": Setting(
        "how long the first steward's approval waits for the second, where both sign in by the organisation",
        more="The site does not see when the provider removes a person",
    ),
    "site.relay.card": Setting("the relay's card"),
    "site.relay.sites": Setting("sites that are reached through the relay"),
    "site.courier.name": Setting("name of the courier's entry point"),
    "site.courier.options": Setting("options passed to the courier"),
    "site.carrier.socket": Setting("socket file on which this agent and the engine's process meet"),
    "site.carrier.latency": Setting("time of one message: `milliseconds` (FLARE) or `seconds` (Flower)"),
    "site.carrier.sites": Setting("names of the other sites in the engine, where they differ"),
    "site.notify.webhook": Setting(
        "https address that receives a JSON message (`text`, `title`, `party`, `link`); http on loopback only"
    ),
    "site.notify.webhook_token": Setting("sent as `Authorization: Bearer`; write it as `${file:NAME}`"),
    "site.notify.smtp": Setting("host:port of the mail server"),
    "site.notify.smtp_tls": Setting(
        "`starttls`, `tls`, or `none` for a server on this machine; certificates are always verified"
    ),
    "site.notify.smtp_user": Setting("name to sign in with; by default `mail_from`"),
    "site.notify.smtp_password": Setting("password; write it as `${file:NAME}`. Without one nobody signs in"),
    "site.notify.mail_from": Setting("sender of the message"),
    "site.notify.mail_to": Setting("receivers of the message"),
    "site.notify.console": Setting("address of the console in links; by default `http://` and `operator`"),
    "site.notify.authority": Setting(
        "PEM file of the authority that certifies webhook and mail server; by default the system's"
    ),
    "site.notify.timeout": Setting("seconds for one attempt, of three"),
    "site.tls.authority": Setting("PEM file of the authority's certificates"),
    "site.tls.certificate": Setting("PEM chain for this site's own key, made from `blindbayes site request`"),
    "site.policy.protocols": Setting("the protocols that may run"),
    "site.policy.min_parties": Setting(
        "minimum number of sites in a sum, or in a model of rows in shares",
        "rows",
        "Over columns nothing is opened, and two suffice",
    ),
    "site.policy.min_rows": Setting("minimum number of this site's rows in a sum, or in training over columns"),
    "site.policy.exact_sums": Setting(
        "`false` refuses sums, models of rows in shares, and totals of this site's classes to others, without an epsilon"
    ),
    "site.policy.changed_data": Setting(
        "allow an exact sum over rows that changed since the table's last one, over the same sites",
        more="The difference of the two sums reveals how the rows of all these sites changed together, and how this site's did "
        "if the others' did not",
    ),
    "site.policy.max_epsilon_per_run": Setting("maximum epsilon of one run; the ledger limits the total"),
    "site.policy.max_delta_per_run": Setting("maximum delta of one run"),
    "site.policy.max_runs_per_day": Setting(
        "maximum number of runs started in 24 hours; the query budget limits classifications instead"
    ),
    "site.policy.max_running": Setting("maximum number of runs at the same time"),
    "site.policy.max_idle_joins_per_day": Setting(
        "maximum number of runs in 24 hours that another site starts here and that end before anything is computed"
    ),
    "site.policy.max_queries": Setting(
        "maximum of `options.queries`", "columns", "A study that does not limit its queries is refused"
    ),
    "site.policy.min_overlap": Setting(
        "minimum of `options.min_overlap`; 0 for any",
        "keyed",
        "A model over one common person reveals whether this site has that person",
    ),
    "site.policy.noise_in_shares": Setting(
        "`true` refuses a study without an epsilon",
        "shares",
        "Without one, a site with a made-up table (one person's values, null or equal for everybody else) reads that "
        "person's class from a few answers",
    ),
    "site.policy.min_cell": Setting(
        "minimum of `limits.min_cell` in a study without an epsilon, or with one above 3; 0 for any",
        "shares",
        "Without either, a site with a different value for each person in one of its columns reads everybody's class, one "
        "answer each. This is not differential privacy: against made-up tables set `noise_in_shares`",
    ),
    "site.policy.min_cell_of_sums": Setting(
        "minimum of `limits.min_cell` in an exact sum over rows; 0 for any",
        more="Cells of fewer rows are then suppressed before anything is opened; the exact sums of a table have one codebook",
    ),
    "site.policy.site_figures": Setting(
        "how much an evaluation may open about single sites: `none`, the `spread` of their accuracies, or `each` site's",
        more="The spread of few sites can show their figures without names: docs/how-to/evaluation.md",
    ),
    "site.policy.failed_outputs": Setting(
        "`false` writes no release of which a check in `disclosure.json` failed, such as cells of fewer than 10 rows",
        more="The sum is open by then: to keep small cells from being opened set `min_cell_of_sums`",
    ),
    "site.policy.min_audit_rate": Setting(
        "minimum of `options.audit_rate`",
        "shares",
        "The share of dummies among look-ups and comparisons. They catch a party that answers from other tables than those "
        "of training, or compares otherwise",
    ),
    "site.policy.max_overlap_bits_per_day": Setting(
        "how often in 24 hours another site may learn whether at least `min_overlap` identifiers match, or which; 0 for never",
        "keyed",
    ),
    "site.policy.reveal_matches": Setting(
        "allow another site to learn which of its identifiers this site has too",
        "keyed",
        'By scope shared, or `reveal = "matching"`',
    ),
    "site.policy.approvers": Setting("number of stewards who must approve a study; 2 for four eyes"),
    "site.policy.min_colluders": Setting(
        "number of colluding sites that a study must withstand",
        "rows",
        "They pool what they saw and learn nothing about the others. The host of the role that opens the sum is one of them",
    ),
    "site.policy.weaker_options": Setting(
        "allow options that weaken a study's protocol", more="Such as few `neighbours` of chain_sum"
    ),
    "site.policy.announce_decisions": Setting(
        "send decisions about a study (received, approved, refused, revoked) to its other parties at once",
        more="A reason goes with a refusal or revocation if the person who decides shares it. `false` sends nothing: a party "
        "that starts a run learns only that this site takes no part",
    ),
    "site.policy.require_all_signatures": Setting("approve only studies that every party has signed"),
    # -- study.toml: all parties sign ----------------------------------------------------------------------------------
    "study.title": Setting("title of the study"),
    "study.kind": Setting(
        "`rows`: parties hold different records of the same columns; `columns`: different columns of the same records, in the "
        "same order; `join`: different columns, and rows are matched by an identifier"
    ),
    "study.protocol": Setting(
        "protocol, which decides who learns what; `blindbayes study check` lists it",
        more="See [the protocols](protocols/index.md)",
    ),
    "study.options": Setting("options of the protocol, as its page lists them"),
    "study.codebook": Setting("codebook of the study"),
    "study.reveal_to": Setting("who learns the class of a classified instance: all, or one party", "columns"),
    "study.key": Setting("the identifier columns, if the codebook has no `[identifier]`", "keyed"),
    "study.duplicates": Setting(
        "rows of one identifier: `join` counts every pair, `first` takes the first, `reject` stops the run", "keyed"
    ),
    "study.hosts": Setting("who runs the roles that no contributor fills, such as `server`"),
    "study.changed_by": Setting(
        "parties that must sign a change of the roster, besides a new one; none: every party that stays", "rows"
    ),
    "study.changes": Setting(
        "changes of the roster, each on top of the one before; outside the study's hash, with hashes of their own",
        "rows",
        "`study roster change` writes them; see [a living consortium](how-to/consortium.md)",
    ),
    "study.signatures": Setting("signatures of the parties; outside the hash"),
    "study.format": Setting("version of the file format"),
    "study.columns.holds": Setting("table `[columns.holds]`: party = its features; `[]` for a party that has the class alone"),
    "study.columns.labelled": Setting("parties that have the class column; the first one provides it", "columns"),
    "study.columns.n_rows": Setting("number of rows, which is public", "aligned"),
    "study.parties.name": Setting("the site's name"),
    "study.parties.identity": Setting("the site's public key, from its card"),
    "study.parties.key": Setting("the hash of the further keys on the site's card, with which pairs of a sum agree on masks"),
    "study.parties.contributes": Setting("`false`: the site brings no rows, and may host a role"),
    "study.privacy.epsilon": Setting(
        "privacy loss of one run; smaller protects more; without it what is opened is exact",
        more="Over columns in shares: of all answers that the model ever gives, by noise of every party in the shares",
    ),
    "study.privacy.delta": Setting("probability that epsilon does not hold; 0 for never"),
    "study.privacy.allow_large_delta": Setting("agree to a delta above a tenth of one over the expected rows"),
    "study.privacy.label_epsilon": Setting(
        "epsilon of the labels, which the class holder randomises once; `false` for none, by default twice epsilon",
        "shares",
        more="Bounds the odds between two classes of a person by e^`label_epsilon`, whatever the other parties' software sends"
        ", in all trainings on the same labels and all answers together. With or without `epsilon`; at most 12. The class "
        "holder's ledger pays half of it once per table of labels, which an `epsilon` as large covers",
    ),
    "study.privacy.unit": Setting("what epsilon protects: one `record` (a row, not a person), or all rows of a `party`"),
    "study.privacy.party_rows": Setting('with `unit = "party"`: number of rows of the largest party'),
    "study.privacy.rows_per_person": Setting(
        "maximum number of rows of a person that a site counts, chosen at random; epsilon protects them together",
        more="By the codebook's identifier. A person with rows at k sites loses up to k times epsilon: see `sites_per_person`",
    ),
    "study.privacy.sites_per_person": Setting(
        "with `rows_per_person`: number of sites at most that a person has rows at, or `matched`; epsilon protects them all "
        "together",
        more="Noise grows with the number. Not checked, since no site may learn who is at another; the number of sites always "
        'holds. `"matched"`: a party that brings no rows and hosts the server compares keyed pseudonyms, each person counts '
        "at one of their sites, and the noise is that for one site",
    ),
    "study.privacy.tuning_note": Setting("how settings were chosen; the statement quotes it as not checked"),
    "study.privacy.expected_rows": Setting(
        "approximate number of rows of all parties, as publicly known; decides how fine the noisy tables are", "noise"
    ),
    "study.privacy.honest_fraction": Setting("fraction of parties assumed honest, which add their noise"),
    "study.limits.min_parties": Setting("minimum number of parties that bring rows", "rows"),
    "study.limits.min_rows": Setting("minimum number of rows of each party"),
    "study.limits.quorum": Setting("minimum number of parties in an opened sum", "rows"),
    "study.limits.min_cell": Setting(
        "cells of fewer rows are suppressed before an exact sum over rows is opened (3 or more; 0: none are)",
        more="With `epsilon`: noisy counts below it are published as 0. Over columns in shares, with or without `epsilon`: "
        "counters below it are set to 0 inside the circuit",
    ),
    "study.deadlines.step": Setting("seconds of silence allowed within a step"),
    "study.deadlines.join": Setting("seconds until every required party has joined"),
    "study.deadlines.run": Setting("seconds of the whole run"),
    "study.estimation.alpha": Setting("Laplace smoothing, added to every count"),
    "study.estimation.var_smoothing": Setting("fraction of the largest variance that is added to every variance"),
    "study.estimation.class_weight": Setting(
        "cost of an error in a class, by label; a threshold t for one of two classes is a weight of (1 - t) / t"
    ),
    "study.estimation.held_out": Setting(
        "fraction of persons (of rows, without an identifier) that no run trains on, for the evaluation of the model",
        "rows",
        "Each site chooses them by a hash under a key of its own, the same in all runs",
    ),
    "study.estimation.folds": Setting("number of folds of a cross-validation of the rows for training; 0: none", "rows"),
    "study.estimation.candidates": Setting(
        "what a cross-validation compares: tables with alpha, bins (of every numeric feature) or features", "rows"
    ),
    "study.estimation.score_bins": Setting("number of bins of a class's log-odds in an evaluation, even, at most 100", "rows"),
    "study.estimation.site_figures": Setting(
        "what an evaluation opens about single sites: `none`, the `spread` of their accuracies (six sites or more), or `each`",
        "rows",
        "In whole percent, and only without epsilon; every site's policy must allow it (`site_figures`)",
    ),
}


def line_of(path: str) -> str:
    """Return the comment beside a setting in its file; empty for a name that is not a setting."""
    return SETTINGS[path].line if path in SETTINGS else ""


LABELS = {  # what pages call a setting; its name in the file stands beside it
    "policy.protocols": "Protocols that may run",
    "policy.min_parties": "Minimum number of sites in a sum",
    "policy.min_rows": "Minimum number of rows here",
    "policy.exact_sums": "Exact sums, without noise",
    "policy.changed_data": "Exact sums after rows changed",
    "policy.max_epsilon_per_run": "Maximum epsilon of a run",
    "policy.max_delta_per_run": "Maximum delta of a run",
    "policy.max_runs_per_day": "Maximum number of runs a day",
    "policy.max_running": "Maximum number of runs at the same time",
    "policy.max_idle_joins_per_day": "Maximum number of fruitless runs a day",
    "policy.max_queries": "Maximum number of people to classify",
    "policy.min_overlap": "Minimum number of common people",
    "policy.max_overlap_bits_per_day": "Maximum number of questions about common people a day",
    "policy.min_audit_rate": "Minimum share of control questions",
    "policy.noise_in_shares": "Models in shares need noise",
    "policy.min_cell": "Minimum cell of a model in shares",
    "policy.min_cell_of_sums": "Minimum cell of an exact sum",
    "policy.reveal_matches": "Others may learn which identifiers match",
    "policy.require_all_signatures": "Every site must sign a study",
    "policy.approvers": "Stewards who must approve a study",
    "policy.min_colluders": "Colluding sites to withstand",
    "policy.weaker_options": "Weaker options of protocols",
    "policy.failed_outputs": "Releases in spite of a failed check",
    "policy.site_figures": "Figures about single sites",
    "policy.announce_decisions": "Send decisions to the other sites",
    "console.data": "Folder of tables",
    "console.max_upload_mb": "Maximum upload, in MB",
    "console.preview_rows": "Rows in a preview",
    "console.databases": "Database servers",
    "listen": "Address where other sites connect",
    "operator": "Address of this console",
    "metrics": "Address for monitoring",
    "ledger": "File of the privacy budget",
    "journal_quota_mb": "Maximum journal of a run, in MB",
    "min_free_mb": "Free disk space to keep, in MB",
    "study.reveal_to": "Who learns the class",
    "study.key": "Column that identifies people",
    "study.duplicates": "Rows with the same identifier",
    "columns.n_rows": "Number of people",
    "privacy.epsilon": "Noise: epsilon of one run",
    "privacy.delta": "Delta",
    "privacy.allow_large_delta": "Allow a large delta",
    "privacy.label_epsilon": "Epsilon of the class labels",
    "privacy.unit": "What the noise protects",
    "privacy.party_rows": "Rows of the largest site",
    "privacy.rows_per_person": "Rows per person",
    "privacy.sites_per_person": "Sites per person",
    "privacy.tuning_note": "How settings were chosen",
    "privacy.expected_rows": "Expected rows of all sites",
    "privacy.honest_fraction": "Fraction of honest sites",
    "limits.min_parties": "Minimum number of sites",
    "limits.min_rows": "Minimum rows of each site",
    "limits.quorum": "Sites that suffice for a result",
    "limits.min_cell": "Smallest group that may show",
    "deadlines.step": "Seconds of silence allowed",
    "deadlines.join": "Seconds until all sites have joined",
    "deadlines.run": "Seconds of a whole run",
    "estimation.alpha": "Smoothing of counts",
    "estimation.var_smoothing": "Smoothing of variances",
    "estimation.class_weight": "Cost of an error, by class",
    "estimation.held_out": "Share of rows kept for evaluation",
    "estimation.folds": "Folds of a cross-validation",
    "estimation.score_bins": "Bins of an evaluation",
    "estimation.site_figures": "Figures about single sites",
    "options.queries": "People who may be classified in all",
    "options.bounds": "Upper bound of people, by site",
    "options.min_overlap": "Minimum number of common people",
    "options.publish": "Sites learn the sum too",
}


def label_of(path: str) -> str:
    """Return what pages call a setting, such as `policy.min_rows`."""
    return LABELS.get(path) or path.rpartition(".")[2].replace("_", " ").capitalize()


KIND_SENTENCES = {
    "rows": "Every site holds the same columns about different people.",
    "columns": "Sites hold different columns about the same people, in the same order.",
    "join": "Sites hold different columns, and people are matched by an identifier; nobody learns who is in both lists.",
}


def option_lines(params: type[msgspec.Struct]) -> dict[str, str]:
    """Return what each option of a protocol does, in one line: the text that annotates its field."""
    hints = get_type_hints(params, include_extras=True)
    return {
        name: next((each for each in getattr(hints[name], "__metadata__", ()) if isinstance(each, str)), "see its page")
        for name in params.__struct_fields__
    }


def annotate(document: Any, path: str) -> Any:
    """Add a comment to each setting of a TOML document or table."""
    inner: Any = document if isinstance(document, Container) else document.value
    for name in document:
        if isinstance(document[name], dict):
            annotate(document[name], f"{path}.{name}")
        elif line := line_of(f"{path}.{name}"):
            inner.item(name).comment(line)
    return document


def no_none(value: Any) -> Any:
    """Return plain builtins without None, which TOML does not have."""
    if isinstance(value, dict):
        return {key: no_none(item) for key, item in value.items() if item is not None}
    return [no_none(item) for item in value] if isinstance(value, list | tuple) else value
