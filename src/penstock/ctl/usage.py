"""Usage of the program and of its verbs, in the layout of RabbitMQ's programs."""

from typing import Final

from penstock import __version__
from penstock.ctl.call import Call
from penstock.ctl.faults import USAGE, Fault
from penstock.ctl.output import BOLD, PLAIN
from penstock.ctl.verbs import ALIASES, VERBS, Verb

PROGRAM: Final = "penstockctl"
COMMON: Final = "[--node <node>] [--longnames] [--quiet]"
COMMON_END: Final = "[--longnames] [--quiet] <command> [<command options>]"
NEAR: Final = 0.77
GENERAL: Final = """\
The following options are accepted by all commands.

short            | long            | description
-----------------|-----------------|--------------------------------
-n <node>        | --node <node>   | the node that has to answer, by its name
-l               | --longnames     | makes no difference: a name is what it is
-t <n>           | --timeout <n>   | operation timeout in seconds
-q               | --quiet         | suppress informational messages
-s               | --silent        | suppress informational messages and table header row
-p <vhost>       | --vhost <vhost> | for commands that are scoped to a virtual host
                 | --formatter     | json, pretty_table, table, csv
                 | --data-dir      | the broker's data directory, where its control file is
                 | --url           | management API instead of the control file,
                 | --user          | with this user
                 | --password      | and this password"""


def all_usage() -> str:
    lines = [
        "",
        f"{BOLD}Usage{PLAIN}",
        "",
        f"{PROGRAM} [--node <node>] [--timeout <timeout>] {COMMON_END}",
        "",
        "Available commands:",
    ]
    section = ""
    for name, verb in VERBS.items():
        if verb.section != section:
            section = verb.section
            lines += ["", f"{BOLD}{section}{PLAIN}:", ""]
        lines.append(f"   {name.ljust(37)} {verb.summary}".rstrip())
    return "\n".join([*lines, "", f"Use '{PROGRAM} help <command>' to learn more about a command"])


def short_usage(name: str, verb: Verb) -> str:
    line = " ".join(filter(None, (PROGRAM, COMMON, name, verb.usage)))
    return f"\n{BOLD}Usage{PLAIN}\n\n{line}"


def usage_of(name: str, verb: Verb) -> str:
    return (
        f"{short_usage(name, verb)}\n\n{verb.summary}.\n\n"
        f"{BOLD}General Options{PLAIN}\n\n{GENERAL}\n"
    )


def not_found(name: str) -> str:
    near = _near(name)
    if near:
        return f"\nCommand '{name}' not found. \nDid you mean '{near}'? \n"
    return f"\nCommand '{name}' not found. \n{all_usage()}"


def _near(name: str) -> str:
    import difflib

    found = difflib.get_close_matches(name, VERBS, n=1, cutoff=NEAR)
    return found[0] if found else ""


def help_verb(call: Call) -> str:
    words = call.take(0, 1)
    if call.is_set("list-commands"):
        return "\n".join(VERBS)
    if not words:
        return all_usage()
    name = words[0]
    verb = VERBS.get(ALIASES.get(name, name))
    if verb is None:
        raise Fault(USAGE, f"Error:\n\nCommand '{name}' not found.")
    return usage_of(name, verb)


def version(_call: Call) -> str:
    return __version__


def autocomplete(call: Call) -> str:
    words = call.take(0, 1)
    return "\n".join(name for name in sorted(VERBS) if name.startswith(words[0] if words else ""))
