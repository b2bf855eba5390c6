"""The command line: one file per subcommand, errors in one line, documented exit codes.

0: success; 1: a check failed; 2: the request cannot be served (bad arguments, no GPU, no such op, a full disk); 3: a defect of
this library; 130: interrupted; 141: the reader of the output closed it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..types import BaracudaError
from .commands import bench, compile, demo, env, explain, ops, run, verify
from .terminal import complain

__all__ = ["COMMANDS", "main"]

# A command module has SUMMARY (the line in the overview), arguments(parser) and run(arguments) -> exit code.
COMMANDS = {
    "demo": demo,
    "ops": ops,
    "explain": explain,
    "run": run,
    "verify": verify,
    "compile": compile,
    "env": env,
    "bench": bench,
}

_DESCRIPTION = "CUDA kernels for CuPy, PyTorch and JAX arrays behind plans that explain themselves."
_EPILOG = """first steps:
  {prog} env                   what is installed, what is missing, how to get it
  {prog} demo                  a checked run, on the GPU or on NumPy
  {prog} ops gelu              ops by name, category or summary
  {prog} COMMAND --help        a command's own arguments
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    prog = "baracuda" if Path(sys.argv[0]).stem == "baracuda" else "python -m baracuda_py"
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog=prog, description=_DESCRIPTION, epilog=_EPILOG.format(prog=prog), formatter_class=raw
    )
    top.add_argument("--version", action="store_true", help="print the version and stop")
    top.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, module in COMMANDS.items():
        sub = commands.add_parser(name, help=module.SUMMARY, description=module.__doc__, formatter_class=raw)
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        module.arguments(sub)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    _open_streams()
    with contextlib.suppress(AttributeError, ValueError):
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal that cannot say "µs"
    top = parser()
    try:
        given = top.parse_args(argv)
    except SystemExit as stop:  # argparse has printed the error
        return int(stop.code or 0)
    try:
        code = _run(top, given)
        sys.stdout.flush()  # flushing may find a full disk or a closed pipe
        return code
    except BrokenPipeError:
        _discard_output()
        return 141
    except (Exception, KeyboardInterrupt) as error:
        if given.debug:
            raise
        code, text = _verdict(given.command, error)
        complain(text)
        return code


def _run(top: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    if given.version:
        from .. import __version__

        print(__version__)
    elif given.command is None:
        top.print_help()
    else:
        return int(COMMANDS[given.command].run(given))
    return 0


def _verdict(command: str, error: BaseException) -> tuple[int, str]:
    """The exit code and the line for an error."""
    if isinstance(error, BaracudaError):
        return 2, str(error)
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted"
    if isinstance(error, (OSError, MemoryError)):
        _discard_output()
        return 2, f"{command}: {error or 'out of memory'}"
    return 3, f"{command}: {type(error).__name__}: {error}; a defect of this library: --debug shows where"


def _open_streams() -> None:
    """Opens null streams for a process that was started with stdout or stderr closed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # as long as the process


def _discard_output() -> None:
    """Redirects stdout's remaining buffer to the null device, so that closing it at exit does not fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
