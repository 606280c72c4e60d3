"""AMQP 0-9-1 on the line, both ways.

decoder.py     bytes -> events (hot): frames, publishes in runs, acknowledgements in runs
assembly.py    a publish whose frames come one by one
skim.py        what the broker must know of the properties, read in passing
encoder.py     messages -> deliver, return, get-ok (hot)
ledger.py      delivery tags of a channel
events.py      what the decoder says
methods.py     all methods: one table, one codec
tables.py      field tables        properties.py   the 14 properties, read in full
errors.py      kinds of errors -> reply codes      refusals.py   texts for broken frames
"""
