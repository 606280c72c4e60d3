"""From a command line to an exit code, in the order in which RabbitMQ's programs do it.

    1  find the verb among the words, whatever options stand before it
    2  read the line again with the options of that verb alone; anything else is invalid
    3  the verb's function: checks its words, says what it does, asks the node
    4  print the result in the form that is asked for

Whatever goes wrong is a text on standard error and one of the exit codes of ``faults``.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Final, TextIO

from penstock import __version__
from penstock.ctl import usage
from penstock.ctl.call import Call
from penstock.ctl.faults import USAGE, Fault, Invalid
from penstock.ctl.options import COMMON, Parsed, parse
from penstock.ctl.output import FORMATTERS, printed
from penstock.ctl.verbs import ALIASES, VERBS, Verb

BROKEN_PIPE: Final = 141
INTERRUPTED: Final = 130


def run(
    line: Sequence[str], out: TextIO, err: TextIO, environment: Mapping[str, str] | None = None
) -> int:
    try:
        return _carried_out(list(line), out, os.environ if environment is None else environment)
    except Fault as fault:
        out.flush()
        err.write(fault.text + "\n")
        return fault.code


def _carried_out(line: list[str], out: TextIO, environment: Mapping[str, str]) -> int:
    words = parse(line, _all_switches()).words
    name = words[0] if words else ""
    if not name:
        return _without_a_verb(line, out)
    verb = VERBS.get(ALIASES.get(name, name))
    if verb is None:
        raise Fault(USAGE, usage.not_found(name))
    parsed = parse(line, {**COMMON, **verb.switches})
    if parsed.options.get("help"):
        out.write(usage.usage_of(name, verb) + "\n")
        return 0
    call = _call(line, verb, name, parsed, environment, out)
    try:
        if not verb.takes_words():
            call.take(0)
        result = _function(verb)(call)
    except Invalid as error:
        text = _invalid(error.text, line, name, verb, error.head)
        raise Fault(error.code, text) from error
    shown = printed(result, call)
    if shown is not None:
        out.write(shown + "\n")
    return 0


def _without_a_verb(line: list[str], out: TextIO) -> int:
    if "--version" in line:
        out.write(__version__ + "\n")
    elif "--help" in line or "-?" in line:
        out.write(usage.all_usage() + "\n")
    else:
        raise Fault(USAGE, usage.all_usage())
    return 0


def _call(
    line: list[str],
    verb: Verb,
    name: str,
    parsed: Parsed,
    environment: Mapping[str, str],
    out: TextIO,
) -> Call:
    if parsed.invalid:
        shown = "\n".join(f"{option} : {value}" for option, value in parsed.invalid)
        text = f"Invalid options for this command:\n{shown}"
        raise Fault(USAGE, _invalid(text, line, name, verb))
    formatter = parsed.options.get("formatter", "")
    if formatter and formatter not in FORMATTERS:
        text = f"there is no formatter {formatter!r}: {', '.join(FORMATTERS)}"
        raise Fault(USAGE, _invalid(text, line, name, verb))
    return Call(name, parsed.words[1:], parsed.options, environment, out, verb.switches)


def _invalid(
    text: str, line: Sequence[str], name: str, verb: Verb, head: str = Invalid.head
) -> str:
    given = " ".join(line)
    return f"{head}: {text}\nArguments given:\n\t{given}\n{usage.short_usage(name, verb)}"


def _all_switches() -> dict[str, str]:
    switches = dict(COMMON)
    for verb in VERBS.values():
        switches |= verb.switches
    return switches


def _function(verb: Verb) -> Callable[[Call], object]:
    file, _, function = verb.target.partition(":")
    module = import_module(f"penstock.ctl.{file}")
    found: Callable[[Call], object] = getattr(module, function, None) or module.from_row
    return found


def main() -> None:
    try:
        code = run(sys.argv[1:], sys.stdout, sys.stderr)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who read us has seen enough; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = BROKEN_PIPE
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)
