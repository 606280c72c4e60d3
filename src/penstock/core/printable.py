"""Text of peers and clients, safe in a line of a log or a cell of a table."""


def printable(text: str, kept: str = "") -> str:
    r"""Control characters, line ends and what changes a text's direction as escapes (``\x1b``).

    ``kept``: those that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in kept else one.encode("unicode_escape").decode()
        for one in text
    )
