"""The hall: virtual hosts, users, and the rules that join queues, routing and storage.

In: calls of sessions.  Out: return values and errors of ``core.errors``; who may have
something to deliver is on the wakeups list.  Knows no protocol bytes.

    broker.py      everything together, the turn      vhost.py      declare, bind, route, publish
    access.py      users and passwords                arguments.py  x-arguments: known and refused
    rights.py      configure, write, read, topics     policies.py   settings by name, merged
    confirms.py    when a publish is safe             administration.py  users, limits, policies
    budget.py      what a virtual host may use        budgets.py    who uses more
    declaring.py   what a user may declare    moving.py      chosen messages go elsewhere
    vhost_removal.py  all of a virtual host goes
    staging.py     batches that are published whole and once; staged.py, batches.py, pouring.py,
                   batch_claims.py: which node of a cluster may
    ha_policy.py   what policies say of mirrors   erlang_terms.py  values as refusals have them
    lookup.py      which node has which NSQ topic  pipelines.py   what pipelines say of themselves
    letting_go.py  what readers of ranges have acknowledged, some a turn
    mirrors.py     what people ask of mirrored queues, and are told
    definitions_json.py  all of it in RabbitMQ's JSON, in    definitions_export.py  and out
"""
