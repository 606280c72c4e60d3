"""Numbers over time: sampled on the data loop in slices, kept and shown on management's side.

    engine's counters ─ every interval, 100 objects a slice ─► sampler ─► rings
    rows (with a ``CountersSnapshot``) ─► completing ─► the same with rates and samples

    kinds       which numbers every kind of object has, and for how long they are kept; the mark
                a row carries: whose numbers these are
    rings       fixed buffers of typed arrays; an object gets one on its first activity
    reading     what is read on the data loop, some dozens of objects at a time
    sampler     the walk over everything, once per interval
    completing  rates, averages and samples in RabbitMQ's shape; called by management/app;
                which samples a request wants (``lengths_age`` and its like)

What it costs is fixed: a slice on the data loop for every hundred objects and interval, and the
rings of those objects that did something in the last hour.  Nothing is sent per message or per
event, so there is no backlog that could grow.
"""
