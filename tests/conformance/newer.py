"""Where RabbitMQ 3.10.8 and 4.3.6 answer otherwise than each other, and what Penstock does.

The cases of all subjects are recorded from both (``recorded/``); this is the one list of those
whose transcripts differ, and a test holds it to be complete.  ``decided``: the setting
``compatibility`` decides; its default is 3.10.  The others are as in 3.10.8, whatever it says,
because of ``why``.  ``docs/differences.md`` shows the list.

Not recorded from 4.3.6 are cases that it tells otherwise from time to time, and those of frames of
4 KiB: it takes no ``frame_max`` below 8 KiB.
"""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Newer:
    """Cases whose records differ for one reason."""

    cases: tuple[str, ...]
    older: str
    newer: str
    why: str
    decided: bool = False


LAST_DEATH: Final = re.compile(r", 'x-last-death-\w+': '[^']*'")
"""On every dead letter of RabbitMQ 4; transcripts are compared without them."""
NEWER: Final = (
    Newer(
        (),
        "Dead letters name their first death.",
        "They name their last one, too: `x-last-death-queue`, `-reason`, `-exchange`.",
        "More headers would show in applications that compare all of them.",
        decided=True,
    ),
    Newer(
        (),
        "The arguments of a queue are those it was declared with.",
        "Its type is always among them, as `x-queue-type`.",
        "Tools that compare arguments, such as exports of definitions, would see changes.",
        decided=True,
    ),
    Newer(
        (
            "exchange.declare_empty_type",
            "exchange.declare_unknown_type",
            "exchange.declare_unknown_type_of_an_existing_exchange",
        ),
        "An exchange type that is not known closes the connection with 503.",
        "It closes the channel with 406.",
        "Nothing that worked breaks by either; a client that tries a type out goes by the code.",
        decided=True,
    ),
    Newer(
        (
            "consume.prefetch_both_limits",
            "consume.prefetch_of_the_channel",
            "consume.prefetch_of_the_channel_raised_and_lifted",
            "prefetch.a_cancelled_consumer_still_counts_for_the_channel",
            "prefetch.a_full_channel_stops_consumers_without_ack",
            "prefetch.a_late_limit_for_the_channel_and_who_consumes_already",
            "prefetch.a_limit_for_consumers_after_one_for_the_channel",
            "prefetch.a_limit_for_the_channel_over_two_queues",
            "prefetch.a_lower_limit_for_the_channel_waits_until_it_is_met",
            "prefetch.what_was_got_before_and_a_limit_for_the_channel",
            "prefetch.what_was_unsettled_before_counts_for_the_channel",
        ),
        "A prefetch with `global` is one window for the channel.",
        "It is a window for each consumer.",
        "An application that asked for one window gets more than it can hold otherwise.",
    ),
    Newer(
        (
            "letters.a_message_published_again_keeps_counting",
            "letters.a_wrong_x_death_is_replaced",
            "letters.deaths_without_a_count",
        ),
        "The x-death that a publisher sends goes on.",
        "It is replaced at the first death.",
        "Applications that publish a message again count their tries by it.",
    ),
    Newer(
        ("copies.in_a_dead_letter_with_a_key_of_its_own",),
        "A dead letter with a routing key of its own loses the header CC.",
        "It keeps it.",
        "The header names queues that do not get the letter.",
    ),
    Newer(
        ("exchange.headers_table",),
        "A binding of a headers exchange with 1 takes a message with 1.0.",
        "It does not.",
        "A binding that matched goes on to match.",
    ),
    Newer(
        (
            "arguments.a_queue_type_of_another_type",
            "arguments.a_text_and_a_byte_array",
            "arguments.of_consumers",
            "arguments.of_other_queue_types",
            "arguments.the_version_of_a_queue",
            "lazy.mode_of_a_wrong_type",
            "queue.argument_master_locator",
            "queue.argument_master_locator_unknown",
        ),
        "Arguments of mirrored and lazy queues are checked, and have effect.",
        "`x-queue-mode` and `x-cancel-on-ha-failover` are not looked at, `x-queue-version` 1 and "
        "`x-queue-master-locator` are refused, `x-queue-leader-locator` is taken.",
        "Mirrored and lazy queues are there.",
    ),
    Newer(
        ("publish.delivery_mode_zero_and_three",),
        "A delivery mode that is neither 1 nor 2 closes the channel.",
        "It is taken, and is not persistent.",
        "A mistake is named.",
    ),
    Newer(
        (
            "frames.body_larger_than_announced",
            "frames.body_size_of_all_ones",
            "frames.every_answer_from_the_client",
            "frames.properties_all_kinds_pass_untouched",
        ),
        "Other texts and codes of malformed frames; headers keep the order of their publisher.",
        "Headers are sorted by name.",
        "No application goes by them.",
    ),
    Newer(
        (
            "handshake.big_frame_before_tune_ok",
            "handshake.header_amqp_0_8",
            "handshake.header_amqp_0_9",
            "handshake.header_amqp_1_0",
            "handshake.header_amqp_1_0_sasl",
            "handshake.header_amqp_1_1_0_9_swapped",
            "handshake.header_eight_random_bytes",
            "handshake.header_http_get",
            "handshake.header_in_two_parts",
            "handshake.header_wrong_first_letter",
            "handshake.start_fields",
            "handshake.tune_ok_lower",
        ),
        "A wrong protocol header is answered with that of AMQP 0-9-1; frames of 4 KiB are taken.",
        "It is answered with that of AMQP 1.0, ANONYMOUS is among the mechanisms, and a "
        "`frame_max` below 8 KiB closes the connection.",
        "Penstock speaks AMQP 0-9-1, and small clients ask for small frames.",
    ),
    Newer(
        ("queue.exclusive_queue_is_free_after_close_ok",),
        "The name of an exclusive queue is free when the connection is closed.",
        "It is locked for some time more.",
        "Clients reconnect at once.",
    ),
    Newer(
        (
            "replies.a_transaction_that_is_rolled_back",
            "replies.answers_are_not_routed",
            "replies.answers_to_nobody",
            "replies.copies_of_an_answer",
            "replies.declaring_the_name",
            "replies.other_methods",
            "replies.request_and_answer",
            "replies.tags_of_answers",
            "replies.the_window_does_not_count_answers",
        ),
        "Direct reply-to: an answer to a requester that is gone comes back as unroutable; "
        "its pseudo queue takes no part in what queues can do.",
        "It is dropped silently; the pseudo queue is a queue of a type of its own.",
        "A responder learns that its requester is gone.",
    ),
)
