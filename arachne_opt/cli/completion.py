"""``arachne completion``: what a shell has to read so that it completes our commands."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_ARACHNE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash  arachne completion bash > ~/.local/share/bash-completion/completions/arachne
    zsh   arachne completion zsh > ~/.zfunc/_arachne    (a folder of $fpath)
    fish  arachne completion fish > ~/.config/fish/completions/arachne.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # click knows all of SHELLS
    root = ctx.find_root().command
    if shell == "bash":
        # click would start bash to ask for its version; the script asks for what it needs itself.
        click.echo(_source(kind, root), nl=False)
        return
    click.echo(kind(root, {}, "arachne", VARIABLE).source(), nl=False)


def _source(kind: type, root: click.Command) -> str:
    made = kind(root, {}, "arachne", VARIABLE)
    text = made.source_template % made.source_vars()
    assert isinstance(text, str)
    return text
