"""Where Penstock answers otherwise than RabbitMQ 3.10.8, on purpose, and why.

This is the one list of such places.  An entry takes one line of the recorded transcript and
says what stands there instead.  The tests hold it to both sides: the recording must contain
the line, and Penstock must answer exactly what the entry says, so an entry that is no longer
true fails.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

RECORDED_ON = "2026-11-21"
"""The last day on which all recordings were compared with RabbitMQ 3.10.8 and were the same."""


@dataclass(frozen=True)
class Difference:
    """``theirs`` becomes ``ours`` (none, one or more lines), for each case named.

    ``rest``: the conversation takes another course from there on, so ``ours`` stands for
    everything that follows.
    """

    cases: tuple[str, ...]
    reason: str
    theirs: str
    ours: tuple[str, ...] = ()
    rest: bool = False


_DECLARE = "class_id=50 method_id=10"
_EXCHANGE = "class_id=40 method_id=10"
_CONSUME = "class_id=60 method_id=20"
_PUBLISH = "class_id=60 method_id=40"
_GOT = "A < basic.get-ok ch=1 delivery_tag={tag} routing_key='<q>'{rest}"
_DECLARED = "A < queue.declare-ok ch=1 queue='<q>'"

_PLACES = (
    "What a quorum queue gets back has its old place again; in RabbitMQ 4.3.6 it comes in the "
    "order in which it was given back."
)
_BACK = (
    "A < basic.get-ok ch=1 delivery_tag={tag} redelivered=True routing_key='<q>'"
    " messages={left} body=b'{body}' headers={{'x-acquired-count': Typed(letter='l', value=1)}}"
)
_BURIED = (
    "A < basic.deliver ch=1 consumer_tag='second' delivery_tag=2{} routing_key='<second>' "
    "body=b'one' headers={{{}'x-death': [{{'count': Typed(letter='l', value=1), 'exchange': '', "
    "'queue': '<q>', 'reason': 'rejected', 'routing-keys': ['<q>'], 'time': <now>}}]{}, "
    "'x-first-death-exchange': '', 'x-first-death-queue': '<q>', "
    "'x-first-death-reason': 'rejected', 'x-last-death-exchange': '', "
    "'x-last-death-queue': '<q>', 'x-last-death-reason': 'rejected'}}"
)
_COUNTED_HEAD = "'x-acquired-count': Typed(letter='l', value=1), "
_COUNTED = ", 'x-delivery-count': Typed(letter='l', value=1)"


_NO_CRASH = (
    "RabbitMQ 4.3.6 ends the connection with an internal error; Penstock says what is wrong."
)
_CONSUMED = "A > basic.consume ch=1 queue='<s>' consumer_tag='c' arguments={{'x-stream-{}': {}}}"


def _not_consumed(key: str, why: str) -> str:
    text = f"PRECONDITION_FAILED - invalid arg 'x-stream-{key}' for queue '<s>' in vhost '/': {why}"
    return f"A < channel.close ch=1 code=406 text={text!r} {_CONSUME}"


_OF_STREAM = (
    "A < basic.deliver ch=1 consumer_tag='c' delivery_tag={0} routing_key='<s>' body=b'm{1}'"
    " headers={{'x-stream-offset': Typed(letter='l', value={1})}} delivery_mode=1"
)
_LABELLED = (
    "A < basic.deliver ch=1 consumer_tag='c' delivery_tag=2 routing_key='<s>' body=b'm{1}' headers="
    "{{'x-stream-filter-value': '{0}', 'x-stream-offset': Typed(letter='l', value={1})}}"
    " delivery_mode=1"
)
_WRONG_OFFSETS = (
    ("True", "{invalid_stream_offset_arg,{bool,true}}"),
    ("1.5", "{invalid_stream_offset_arg,{double,1.5}}"),
    ("{'a': 1}", '{invalid_stream_offset_arg,{table,#{<<"a">> => 1}}}'),
    ("[1]", "{invalid_stream_offset_arg,{array,[1]}}"),
)


def _declare(name: str, value: int) -> str:
    return (
        "A > queue.declare ch=1 queue='<q>' durable=True "
        f"arguments={{'x-queue-type': 'quorum', 'x-{name}': {value}}}"
    )


def _refused(name: str, quote: str, why: str) -> str:
    """``quote``: as Python writes the text."""
    text = f"PRECONDITION_FAILED - invalid arg 'x-{name}' for queue '<q>' in vhost '/': "
    text = text.replace("'", quote) + why
    shown = f"'{text}'" if "\\" in quote else f'"{text}"'
    return f"A < channel.close ch=1 code=406 text={shown} {_DECLARE}"


_TOO_LARGE = (
    "RabbitMQ collects the whole body before it looks at its size; Penstock refuses when the "
    "header announces it, so that no client can fill its memory."
)

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        ("limits.a_delivery_limit",),
        "Penstock's queues have a delivery limit, whatever their type.",
        'A < channel.close ch=1 code=406 text="PRECONDITION_FAILED - invalid arg '
        "'x-delivery-limit' for queue '<q>' in vhost '/' of queue type rabbit_classic_queue\" "
        + _DECLARE,
        (_DECLARED,),
        rest=True,
    ),
    Difference(
        ("queue.argument_master_locator_unknown",),
        "RabbitMQ crashes over a master locator that it does not know; Penstock refuses it.",
        "A < connection.close code=541 text='INTERNAL_ERROR'",
        (
            (
                "A < channel.close ch=1 code=406 text='PRECONDITION_FAILED - invalid arg "
                "\\'x-queue-master-locator\\' for queue \\'<q>\\' in vhost \\'/\\': "
                '"<<"near">> invalid queue-master-locator value"\' ' + _DECLARE
            ),
            "A > channel.close-ok ch=1",
        ),
        rest=True,
    ),
    Difference(
        ("time.behind_one_that_stays",),
        "A message goes when its time is over, wherever it is in the queue; RabbitMQ looks at the"
        " head only.",
        _DECLARED + " messages=2",
        (_DECLARED + " messages=1",),
    ),
    Difference(
        ("priorities.a_full_queue_drops_from_its_head",),
        "A full queue with priorities loses its lowest first; `priority_drop_order` has RabbitMQ's"
        " order.",
        _GOT.format(tag=1, rest=" messages=1 body=b'1-1' priority=1"),
        (
            _GOT.format(tag=1, rest=" messages=1 body=b'0-3' priority=3"),
            "A > basic.get ch=1 queue='<q>' no_ack=True",
            _GOT.format(tag=2, rest=" body=b'2-2' priority=2"),
            "A > basic.get ch=1 queue='<q>' no_ack=True",
            "A < basic.get-empty ch=1",
        ),
        rest=True,
    ),
    Difference(
        ("copies.in_a_dead_letter",),
        "BCC is gone when a message rests; RabbitMQ keeps it beside the message, and its dead "
        "letters follow it.",
        "A < queue.declare-ok ch=1 queue='<by-bcc>' messages=1",
        ("A < queue.declare-ok ch=1 queue='<by-bcc>'",),
    ),
    *(
        Difference(
            (f"hash.{key.replace('-', '_')}_of_the_wrong_type",),
            "RabbitMQ's plug-in crashes over an argument of a wrong type; Penstock refuses it.",
            "A < connection.close code=541 text='INTERNAL_ERROR'",
            (
                (
                    'A < channel.close ch=1 code=406 text="PRECONDITION_FAILED - invalid type '
                    f"'signedint' for arg '{key}' in exchange '<x>' in vhost '/'\" {_EXCHANGE}"
                ),
                "A > channel.close-ok ch=1",
            ),
            rest=True,
        )
        for key in ("hash-header", "hash-property")
    ),
    Difference(
        ("handshake.header_amqp_0_8",),
        "RabbitMQ still speaks AMQP 0-8, Penstock does not.",
        "A < connection.start 8-0",
        ("A < bytes b'AMQP\\x00\\x00\\t\\x01'", "A < closed at once"),
        rest=True,
    ),
    Difference(
        ("frames.body_size_over_the_limit",),
        _TOO_LARGE,
        "A < silence",
        (
            "A < channel.close ch=1 code=406 text='PRECONDITION_FAILED - message size 134217729 "
            "is larger than configured max size 134217728' " + _PUBLISH,
            "A < silence",
        ),
    ),
    Difference(
        ("frames.body_size_of_all_ones",),
        _TOO_LARGE,
        "A < silence",
        (
            "A < channel.close ch=1 code=406 text='PRECONDITION_FAILED - message size "
            "18446744073709551615 is larger than configured max size 134217728' " + _PUBLISH,
            "A < silence",
        ),
    ),
    Difference(
        ("frames.arguments_table_nested_10000_deep",),
        "Tables nested more than 128 deep are treated as malformed.",
        _DECLARED,
        ("A < closed at once",),
        rest=True,
    ),
    Difference(
        ("frames.header_frame_too_short",),
        "RabbitMQ notices the missing property flags when it reads them, after the body; "
        "Penstock when it sees the header.  The answer is the same.",
        "A < silence",
        (
            "A < connection.close code=541 text='INTERNAL_ERROR'",
            "A > connection.close-ok",
            "A < closed",
        ),
    ),
    Difference(
        ("frames.deliver_from_the_client",),
        "RabbitMQ waits for the content of a method it will refuse; Penstock refuses it at once.",
        "A < silence",
        (
            (
                "A < connection.close code=503 text='COMMAND_INVALID - unimplemented method' "
                "class_id=60 method_id=60"
            ),
            "A > connection.close-ok",
            "A < closed",
        ),
    ),
    Difference(
        ("frames.a_name_left_out_on_an_unopened_channel",),
        "RabbitMQ looks for the queue that was declared last before it looks whether the channel "
        "is open.",
        "A < channel.close ch=3 code=404 text='NOT_FOUND - no previously declared queue' "
        "class_id=60 method_id=70",
        (
            (
                "A < connection.close code=504 text=\"CHANNEL_ERROR - expected 'channel.open'\" "
                "class_id=60 method_id=70"
            ),
            "A > connection.close-ok",
            "A < closed",
        ),
        rest=True,
    ),
    Difference(
        ("frames.close_ok_on_an_unopened_channel",),
        "A close-ok may come late: a client that closes a channel while the broker "
        "does may use its number again without one, and is not to lose the connection over it.",
        "A < connection.close code=504 text=\"CHANNEL_ERROR - expected 'channel.open'\" "
        "class_id=20 method_id=41",
        ("A < silence",),
        rest=True,
    ),
    Difference(
        ("prefetch.what_was_got_before_and_a_limit_for_the_channel",),
        "In RabbitMQ what was got and not settled when a limit for the channel comes takes up room "
        "for ever, even when it is settled; here what is got never counts.",
        "A < basic.consume-ok ch=1 consumer_tag='t'",
        (
            "A < basic.consume-ok ch=1 consumer_tag='t'",
            "A < basic.deliver ch=1 consumer_tag='t' delivery_tag=3 routing_key='<q>' body=b'2'",
        ),
    ),
    Difference(
        ("replies.a_transaction_that_is_rolled_back",),
        "RabbitMQ routes what a transaction publishes at once, and an answer cannot be taken "
        "back; Penstock routes it when the transaction commits.",
        "A < basic.deliver ch=1 consumer_tag='r' delivery_tag=2 "
        "routing_key='amq.rabbitmq.reply-to.<key>' body=b'rolled back'",
        (
            (
                "A < basic.deliver ch=1 consumer_tag='r' delivery_tag=2 "
                "routing_key='amq.rabbitmq.reply-to.<key>' body=b'committed'"
            ),
        ),
    ),
    Difference(
        ("stream.offsets_of_wrong_types",),
        _NO_CRASH,
        "A < connection.close code=541 text='INTERNAL_ERROR'",
        tuple(
            line
            for place, (shown, kind) in enumerate(_WRONG_OFFSETS)
            for line in (
                *([_CONSUMED.format("offset", shown)] if place else []),
                _not_consumed("offset", kind),
                "A > channel.close-ok ch=1",
            )
        ),
        rest=True,
    ),
    Difference(
        ("stream.consumed_from_a_number_below_zero",),
        "RabbitMQ 4.3.6 takes a negative offset for the first one; here, as in LavinMQ, it counts "
        "back from the end.",
        _OF_STREAM.format(1, 0),
        (_OF_STREAM.format(1, 3), _OF_STREAM.format(2, 4)),
        rest=True,
    ),
    Difference(
        ("stream.consumed_from_a_void_offset",),
        "RabbitMQ 4.3.6 ends the connection with an internal error; here, as in LavinMQ, a void "
        "offset keeps the position of the consumer, from the first message on.",
        "A < connection.close code=541 text='INTERNAL_ERROR'",
        (
            "A < basic.consume-ok ch=1 consumer_tag='c'",
            _OF_STREAM.format(1, 0),
            _OF_STREAM.format(2, 1),
        ),
        rest=True,
    ),
    Difference(
        ("stream.consumed_with_a_position_to_be_kept",),
        "RabbitMQ 4.3.6 does not know `x-stream-automatic-offset-tracking`, which LavinMQ has: the "
        "position of the consumer is kept, and it goes on there.",
        _OF_STREAM.format(1, 0).replace("A <", "B <"),
        (_OF_STREAM.format(1, 2).replace("A <", "B <"),),
    ),
    Difference(
        ("stream.filtered_by_headers",),
        "RabbitMQ 4.3.6 takes a table as no filter; here, as in LavinMQ, it is one of headers.",
        _LABELLED.format("us", 1),
        (_LABELLED.format("eu", 3),),
    ),
    Difference(
        ("stream.filters_of_wrong_types",),
        _NO_CRASH,
        "A < connection.close code=541 text='INTERNAL_ERROR'",
        (_not_consumed("filter", "{unacceptable_type,signedint}"), "A > channel.close-ok ch=1"),
        rest=True,
    ),
    Difference(
        ("quorum.consumed_exclusively",),
        "RabbitMQ 4.3.6 takes an exclusive consumer of a quorum queue and lets others beside it; "
        "Penstock keeps the word it gave.",
        "B < basic.consume-ok ch=1 consumer_tag='two'",
        (
            (
                "B < channel.close ch=1 code=403 text=\"ACCESS_REFUSED - queue '<q>' in vhost '/' "
                'in exclusive use" class_id=60 method_id=20'
            ),
            "B > channel.close-ok ch=1",
        ),
    ),
    Difference(
        ("quorum.delivery_limits_below_zero",),
        "In RabbitMQ 4.3.6 each number below zero means that there is no limit; here -1 does.",
        _DECLARED,
        (
            _DECLARED,
            _declare("delivery-limit", -2),
            _refused("delivery-limit", "'", "{value_negative,-2}"),
            "A > channel.close-ok ch=1",
            _declare("delivery-limit", -1000),
            _refused("delivery-limit", "'", "{value_negative,-1000}"),
            "A > channel.close-ok ch=1",
        ),
        rest=True,
    ),
    Difference(
        ("quorum_returns.returned_in_their_order",),
        _PLACES,
        _BACK.format(tag=4, left=2, body="three"),
        (_BACK.format(tag=4, left=2, body="one"),),
    ),
    Difference(
        ("quorum_returns.returned_in_their_order",),
        _PLACES,
        _BACK.format(tag=5, left=1, body="one"),
        (_BACK.format(tag=5, left=1, body="three"),),
    ),
    Difference(
        ("quorum_returns.nacked_up_to_a_tag",),
        _PLACES,
        _BACK.format(tag=5, left=2, body="two"),
        (_BACK.format(tag=5, left=2, body="one").replace("value=1", "value=2"),),
    ),
    Difference(
        ("quorum_returns.nacked_up_to_a_tag",),
        _PLACES,
        _BACK.format(tag=6, left=1, body="three"),
        (_BACK.format(tag=6, left=1, body="two"),),
    ),
    Difference(
        ("quorum_returns.nacked_up_to_a_tag",),
        _PLACES,
        _BACK.format(tag=7, left=0, body="one")
        .replace(" messages=0", "")
        .replace("value=1", "value=2"),
        (_BACK.format(tag=7, left=0, body="three").replace(" messages=0", ""),),
    ),
    Difference(
        ("quorum_priorities.a_higher_priority_overtakes_what_came_back",),
        "What a quorum queue gets back goes behind higher priorities; in RabbitMQ 4.3.6 it goes "
        "before all that was not delivered yet.",
        _BACK.format(tag=2, left=1, body="low") + " priority=1",
        (
            _GOT.format(tag=2, rest=" messages=1 body=b'high' priority=9"),
            "A > basic.get ch=1 queue='<q>' no_ack=True",
            _BACK.format(tag=3, left=0, body="low").replace(" messages=0", "") + " priority=1",
            "A > basic.get ch=1 queue='<q>' no_ack=True",
            "A < basic.get-empty ch=1",
        ),
        rest=True,
    ),
    Difference(
        ("history.an_exchange_bound_that_leads_nowhere",),
        "RabbitMQ 4.3.6 binds, and closes the connection when the history of an `x-recent-history` "
        "exchange finds no queue behind an exchange that is bound to it.",
        "A < connection.close code=541 text=\"INTERNAL_ERROR - could not find queue/exchange ''\""
        " class_id=40 method_id=30",
        ("A < exchange.bind-ok ch=1",),
        rest=True,
    ),
    Difference(
        ("quorum.got_with_what_is_left",),
        "RabbitMQ 4.3.6 counts a channel that got a message from a quorum queue as a consumer.",
        _DECLARED + " messages=2 consumers=1",
        (_DECLARED + " messages=2",),
    ),
    Difference(
        ("quorum.refused_by_a_full_queue",),
        "A quorum queue of RabbitMQ 4.3.6 notices that it is full after it took one message more.",
        "A < basic.ack ch=1 delivery_tag=1",
        ("A < basic.nack ch=1 delivery_tag=1 multiple=True requeue=True",),
    ),
    Difference(
        ("quorum.buried_twice",),
        "In RabbitMQ 4.3.6 the counts of a dead letter go on in the next quorum queue; here they "
        "begin anew, and so does its delivery limit.",
        _BURIED.format(" redelivered=True", _COUNTED_HEAD, _COUNTED),
        (_BURIED.format("", "", ""),),
    ),
    Difference(
        ("quorum_retries.wrong_values_of_retries",),
        "RabbitMQ 4.3.6 takes whatever is said of retries, and retries at once when it makes no "
        "sense.",
        _DECLARED,
        (
            _refused("delayed-retry-type", "\\'", "\"unsupported delayed retry type \\'often\\'\""),
            "A > channel.close-ok ch=1",
            _declare("delayed-retry-min", 0),
            _refused("delayed-retry-min", "'", "{value_zero,0}"),
            "A > channel.close-ok ch=1",
            _declare("delayed-retry-max", -1),
            _refused("delayed-retry-max", "'", "{value_negative,-1}"),
            "A > channel.close-ok ch=1",
        ),
        rest=True,
    ),
    Difference(
        ("quorum.limit_that_is_no_number",),
        "RabbitMQ 4.3.6 ignores a delivery limit that is no number.",
        _DECLARED,
        (
            (
                "A < channel.close ch=1 code=406 text='PRECONDITION_FAILED - invalid arg "
                "\\'x-delivery-limit\\' for queue \\'<q>\\' in vhost \\'/\\': \"expected integer, "
                "got longstr\"' class_id=50 method_id=10"
            ),
            "A > channel.close-ok ch=1",
        ),
    ),
    Difference(
        ("publish.small_frames_to_a_large_frame_max",),
        "Penstock hands on a message's frames as the publisher cut them when they fit the "
        "consumer's limit; RabbitMQ joins and cuts anew.",
        "B < 10000 bytes in frames with payloads of [10000]",
        ("B < 10000 bytes in frames with payloads of [4088, 4088, 1824]",),
    ),
)
"""Decisions."""


def expected(case: str, recorded: Iterable[str]) -> list[str]:
    """What Penstock must answer: the recording, with the differences of this case applied."""
    lines = list(recorded)
    for difference in DIFFERENCES:
        if case in difference.cases:
            lines = _apply(difference, case, lines)
    return lines


_TABLE = re.compile(r"{'[^{}]+}")
_FIELD = re.compile(r"'[\w-]+': (?:\w+\([^)]*\)|\[[^]]*\]|'[^']*'|<now>|\S+)(?=, '|$)")


def in_order(lines: Iterable[str]) -> list[str]:
    """The lines with the fields of inner tables by name: their order says nothing.

    RabbitMQ 4 makes the entries of x-death in an order that differs from RabbitMQ 3's.
    """
    return [_TABLE.sub(_by_name, line) for line in lines]


def _by_name(table: re.Match[str]) -> str:
    return "{" + ", ".join(sorted(_FIELD.findall(table[0][1:-1]))) + "}"


def _apply(difference: Difference, case: str, lines: list[str]) -> list[str]:
    if difference.theirs not in lines:
        raise AssertionError(
            f"{case}: the recording has no line {difference.theirs!r} to differ from"
        )
    if difference.rest:
        return lines[: lines.index(difference.theirs)] + list(difference.ours)
    told: list[str] = []
    for line in lines:
        told.extend(difference.ours if line == difference.theirs else [line])
    return told
