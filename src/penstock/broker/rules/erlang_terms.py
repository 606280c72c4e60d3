"""Values as Erlang writes them, because RabbitMQ's refusals have them.

In: what JSON can say.  Out: one line, such as ``[<<"a">>,1,null]``.
"""

from penstock.routing.headers import float_term

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def term(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'<<"{"".join(_ESCAPES.get(one, one) for one in value)}">>' if value else "<<>>"
    if isinstance(value, list):
        return f"[{','.join(term(one) for one in value)}]"
    if isinstance(value, dict):
        pairs = [f"{term(key)} => {term(value[key])}" for key in sorted(value)]
        return f"#{{{','.join(pairs)}}}"
    return float_term(value) if isinstance(value, float) else str(value)
