"""Compiles the quiet, hot rooms with mypyc; everything else is in pyproject.toml.

``PENSTOCK_NO_COMPILE=1`` builds the same program from the same files, interpreted.
Without a C compiler the build goes on and leaves the interpreted files in charge.
"""

import os

from setuptools import setup

HOT = [
    "src/penstock/core/message.py",
    "src/penstock/core/headers.py",
    "src/penstock/core/letters.py",
    "src/penstock/core/credit.py",
    "src/penstock/wire/amqp/errors.py",
    "src/penstock/wire/amqp/tables.py",
    "src/penstock/wire/amqp/methods.py",
    "src/penstock/wire/amqp/properties.py",
    "src/penstock/wire/amqp/events.py",
    "src/penstock/wire/amqp/skim.py",
    "src/penstock/wire/amqp/refusals.py",
    "src/penstock/wire/amqp/assembly.py",
    "src/penstock/wire/amqp/decoder.py",
    "src/penstock/wire/amqp/encoder.py",
    "src/penstock/wire/amqp/header_edit.py",
    "src/penstock/wire/amqp/header_reader.py",
    "src/penstock/wire/amqp/routing_facts.py",
    "src/penstock/wire/amqp/letters.py",
    "src/penstock/wire/amqp/traces.py",
    "src/penstock/wire/amqp/ledger.py",
    "src/penstock/storage/failpoints.py",
    "src/penstock/storage/files.py",
    "src/penstock/storage/seq_ranges.py",
    "src/penstock/storage/disk_jobs.py",
    "src/penstock/storage/store_codec.py",
    "src/penstock/storage/store_files.py",
    "src/penstock/storage/store_groups.py",
    "src/penstock/storage/store_reads.py",
    "src/penstock/storage/store_gc.py",
    "src/penstock/storage/store_recovery.py",
    "src/penstock/storage/message_store.py",
    "src/penstock/storage/message_record.py",
    "src/penstock/storage/journal_codec.py",
    "src/penstock/storage/journal.py",
    "src/penstock/storage/journal_recovery.py",
    "src/penstock/storage/segment_codec.py",
    "src/penstock/storage/segment.py",
    "src/penstock/storage/segment_jobs.py",
    "src/penstock/storage/index_reading.py",
    "src/penstock/storage/segment_rewriting.py",
    "src/penstock/storage/queue_index.py",
    "src/penstock/storage/index_recovery.py",
    "src/penstock/storage/terms.py",
    "src/penstock/storage/ram.py",
    "src/penstock/storage/resting_queue.py",
    "src/penstock/storage/memory_monitor.py",
    "src/penstock/storage/engine.py",
    "src/penstock/storage/recovery.py",
    "src/penstock/backing/interface.py",
    "src/penstock/backing/runs.py",
    "src/penstock/backing/pending.py",
    "src/penstock/backing/ram_target.py",
    "src/penstock/backing/resting.py",
    "src/penstock/backing/paging.py",
    "src/penstock/backing/ending.py",
    "src/penstock/backing/returning.py",
    "src/penstock/backing/expiring.py",
    "src/penstock/backing/variable_queue.py",
    "src/penstock/backing/priorities.py",
    "src/penstock/backing/deduplication.py",
    "src/penstock/backing/factory.py",
    "src/penstock/queues/consumers.py",
    "src/penstock/queues/limits.py",
    "src/penstock/queues/limiting.py",
    "src/penstock/queues/refusals.py",
    "src/penstock/queues/queue.py",
    "src/penstock/queues/schedule.py",
    "src/penstock/routing/topic_trie.py",
    "src/penstock/routing/headers.py",
    "src/penstock/routing/matcher.py",
    "src/penstock/routing/consistent_hash.py",
    "src/penstock/routing/once.py",
    "src/penstock/routing/exchanges.py",
    "src/penstock/broker/access.py",
    "src/penstock/broker/rights.py",
    "src/penstock/broker/arguments.py",
    "src/penstock/broker/equivalence.py",
    "src/penstock/broker/policies.py",
    "src/penstock/broker/confirms.py",
    "src/penstock/broker/flow.py",
    "src/penstock/broker/bottleneck.py",
    "src/penstock/broker/routes.py",
    "src/penstock/broker/replies.py",
    "src/penstock/broker/waiting_rooms.py",
    "src/penstock/broker/sweep.py",
    "src/penstock/broker/vhost.py",
    "src/penstock/broker/dead_letters.py",
    "src/penstock/broker/delays.py",
    "src/penstock/broker/forecast.py",
    "src/penstock/broker/alarms.py",
    "src/penstock/broker/admission.py",
    "src/penstock/broker/broker.py",
    "src/penstock/server/session.py",
    "src/penstock/server/amqp_link.py",
    "src/penstock/server/amqp_topology.py",
    "src/penstock/server/amqp_replies.py",
    "src/penstock/server/amqp_copies.py",
    "src/penstock/server/amqp_firehose.py",
    "src/penstock/server/amqp_deadlines.py",
    "src/penstock/server/amqp_heartbeat.py",
    "src/penstock/server/amqp_stamping.py",
    "src/penstock/server/amqp_intake.py",
    "src/penstock/server/amqp_publishing.py",
    "src/penstock/server/amqp_transaction.py",
    "src/penstock/server/amqp_channel.py",
    "src/penstock/server/amqp_handshake.py",
    "src/penstock/server/amqp_opening.py",
    "src/penstock/server/amqp_session.py",
    "src/penstock/server/turn.py",
    "src/penstock/server/loop.py",
    "src/penstock/client/histogram.py",
    "src/penstock/client/load.py",
]


def extensions():
    if os.environ.get("PENSTOCK_NO_COMPILE") == "1":
        return []
    from mypyc.build import mypycify

    modules = mypycify(
        ["--config-file=mypy.ini", *HOT] if os.path.exists("mypy.ini") else HOT,
        opt_level="3",
        debug_level="1",
    )
    if os.environ.get("PENSTOCK_REQUIRE_COMPILED") != "1":
        for module in modules:
            module.optional = True
    return modules


setup(ext_modules=extensions())
