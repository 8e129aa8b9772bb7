"""The command line. Each command is a module of its own, imported only when it is called.

Exit codes: 0 success; 1 unexpected error; 2 configuration; 3 data; 4 privacy; 5 to 8 protocol (our fault, a peer's fault,
integrity, peer lost); 9 ledger; 10 stopped by a person.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from importlib import import_module
from typing import Any

import click

from blindbayes import __version__
from blindbayes import _extensions as extensions
from blindbayes._lazy import missing_extra
from blindbayes.cli.terminal import sanitised_output, set_up_logging
from blindbayes.errors import BlindbayesError

COMMANDS = {
    "audit": "Try to refute the privacy claim of a mechanism or an estimator.",
    "codebook": "Make, check and show codebooks: public facts about columns.",
    "demo": "Run a demonstration: three hospitals train one model.",
    "drift": "Compare current rows with the model in use: retrain or not?",
    "explain": "Explain a model, value by value.",
    "export": "Write a model as PMML, ONNX, skops or MLflow.",
    "ids": "Check identifiers before two parties join on them.",
    "ledger": "Open, show and verify the record of privacy spent.",
    "plan": "Forecast accuracy against epsilon on a public or synthetic proxy.",
    "predict": "Classify rows with a model file.",
    "relay": "Relay ciphertext between sites that can only dial out.",
    "report": "Verify a release folder and show who learned what.",
    "settings": "Print every setting of site.toml and study.toml.",
    "site": "Run one organisation's agent: keys, policy, approvals.",
    "study": "Write, check, sign and run a study of several organisations.",
    "train": "Fit a model on one table and write the model file.",
}


_ELSEWHERE = {  # what people type, and the commands that do it
    "fit": "`blindbayes train` fits a model.",
    "classify": "`blindbayes predict` classifies rows.",
    "infer": "`blindbayes codebook draft` describes a public table, `blindbayes predict` classifies rows.",
    "init": "`blindbayes site init`, `study init` and `ledger init` begin a site, a study and a ledger.",
    "synthetic": "`blindbayes report synthetic` draws rows from a release.",
    "verify": "`blindbayes report verify` checks a release, `blindbayes ledger verify` a ledger.",
    **dict.fromkeys(
        ("evaluate", "eval", "score", "test", "validate", "cross-validate", "crossvalidate", "cv"),
        "`blindbayes train` prints the accuracy by cross-validation; `blindbayes drift MODEL TABLE` measures a model on rows "
        "with a class column; `blindbayes study evaluate` that of a study.",
    ),
}


def _with_examples(command: click.Command) -> click.Command:
    """Keep the line breaks of examples in the help of a command and its sub-commands; click would wrap them."""
    command.help = re.sub(r"\n\n( *)(?=(?:Examples?|Formats):\n)", r"\n\n\1" + "\b" + r"\n\1", command.help or "")
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        _with_examples(each)
    return command


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *extensions.added(extensions.COMMANDS)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        added = extensions.added(extensions.COMMANDS)
        if cmd_name in COMMANDS:
            module = import_module(f"blindbayes.cli.commands.{cmd_name}")
        elif cmd_name in added:
            module = extensions.load(extensions.COMMANDS, cmd_name)
        else:
            return None
        command = _with_examples(module.command)
        if related := [name for name in added if name.startswith(f"{cmd_name}-")]:
            command.epilog = f"See also: {', '.join(sorted(related))}."
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and args[0] not in (known := self.list_commands(ctx)) and not args[0].startswith("-"):
            extensions.refuse_missing(args[0])
            near = difflib.get_close_matches(args[0], known, n=1)
            hint = _ELSEWHERE.get(args[0].casefold(), f"Did you mean {near[0]!r}?" if near else "")
            ctx.fail(f"No such command {args[0]!r}. {hint}".rstrip())
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            added = extensions.added(extensions.COMMANDS)  # not imported: --help stays quick, and no extension breaks it
            lines = {name: f"Added by {module.partition('.')[0]}: see {name} --help." for name, module in added.items()}
            formatter.write_dl(sorted((lines | COMMANDS).items()))


@click.command(
    cls=_Commands, invoke_without_command=True, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option("--version", is_flag=True, help="Print the version; with -v also the kernels in use.")
@click.option("-v", "--verbose", count=True, help="Log more; twice for debugging.")
@click.pass_context
def root(context: click.Context, version: bool, verbose: int) -> None:
    """Naive Bayes on data that must not be pooled."""
    set_up_logging(verbose)
    if version:
        click.echo(f"blindbayes, version {__version__}")
        if verbose:
            click.echo(import_module("blindbayes.crypto.kernels").describe())
        context.exit()
    if context.invoked_subcommand is None:
        context.fail("Missing command.")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. An error of the package becomes one line, or one object with --json, and its exit code."""
    with sanitised_output():
        _main(sys.argv[1:] if arguments is None else arguments)


def _main(arguments: list[str]) -> None:
    try:
        root.main(args=arguments, prog_name="blindbayes", standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.Abort:
        click.echo("stopped", err=True)
        sys.exit(130)
    except click.ClickException as problem:
        if "--json" in arguments:
            click.echo(json.dumps({"error": "UsageError", "message": problem.format_message(), "exit_code": 2}))
        else:
            problem.show()
        sys.exit(2)
    except BlindbayesError as problem:
        if "--json" in arguments:
            click.echo(json.dumps({"error": type(problem).__name__, "message": str(problem), "exit_code": problem.code}))
        else:
            click.echo(f"error: {problem}", err=True)
        sys.exit(problem.code)
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as problem:
        if isinstance(problem, ImportError) and (error := missing_extra(problem)) is not None:
            click.echo(f"error: {error}", err=True)
            sys.exit(error.code)
        # Messages and tracebacks of libraries quote values from rows: they are shown only on request.
        if any(argument in {"-vv", "-vvv"} for argument in arguments):
            raise
        kind = f"{type(problem).__name__}: {problem.strerror}" if isinstance(problem, OSError) else type(problem).__name__
        click.echo(f"error: unexpected {kind}; -vv shows the traceback, which may quote rows", err=True)
        sys.exit(1)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))
