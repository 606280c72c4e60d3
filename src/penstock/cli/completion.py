"""``penstock completion``: what makes a shell complete ``penstock`` and ``penstockctl``.

For ``penstock`` the script asks the program itself, so it knows every command and option of the
release that is installed; for ``penstockctl`` it lists the verbs.
"""

import click

NAMES = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/config.fish"}


@click.command(
    epilog='\b\nExamples:\n  eval "$(penstock completion bash)"       # now, or in ~/.bashrc\n'
    '  eval "$(penstock completion zsh)"        # in ~/.zshrc, after compinit\n'
    "  penstock completion fish | source        # in ~/.config/fish/config.fish"
)
@click.argument("shell", type=click.Choice(list(NAMES)))
def completion(shell: str) -> None:
    """Print a shell's completion script, for penstock and penstockctl."""
    from click.shell_completion import get_completion_class

    from penstock.cli.main import cli
    from penstock.ctl.verbs import VERBS

    kind = get_completion_class(shell)
    assert kind is not None
    # The template itself: its maker would first run the shell to look at its version.
    script = kind.source_template % kind(cli, {}, "penstock", "_PENSTOCK_COMPLETE").source_vars()
    click.echo(script.strip())
    click.echo(_for_penstockctl(shell, sorted(VERBS)))


def _for_penstockctl(shell: str, verbs: list[str]) -> str:
    words = " ".join(verbs)
    if shell == "bash":
        return f"complete -W '{words}' penstockctl"
    if shell == "zsh":
        return f'compdef "compadd {words}" penstockctl'
    return f"complete -c penstockctl -f -n __fish_use_subcommand -a '{words}'"
