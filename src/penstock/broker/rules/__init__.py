"""Rules: rights, arguments and texts of refusals, policies, limits, alarms, admission, confirms.

queue_options.py   every option of queues, exchanges and NSQ topics, declared once
arguments.py       the checks of optional arguments, and the texts of refused declarations
equivalence.py     declaring again what exists
erlang_terms.py    values as Erlang writes them, for these texts
policies.py        policies and operator policies, merged with arguments
ha_policy.py, parameter_values.py  values of ``ha-`` keys and of runtime parameters
access.py, rights.py, log_ins.py   users, their permissions, their log-ins
alarms.py          memory and disk against their watermarks
admission.py       why publishers are blocked: alarms, budgets, a full disk
budget.py          what one virtual host may use
flow.py            credit of publishes
confirms.py        when a publish may be confirmed
forecast.py        when the disk will be full
bounded_events.py, declared_bytes.py  bounds of what peers make the node keep
"""
