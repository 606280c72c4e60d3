"""Management looks in: an HTTP API in the dialect of RabbitMQ 3.10, and a status page.

    app         the HTTP server: its own thread and event loop, errors, log-in
    browsers    who was sent by somebody else's page
    http_connections  how many of them, and how long without a request
    desk        what every desk has: a desk names routes and answers for one kind of thing
    lists       desks that answer with lists: in slices, filtered, sorted, paged
    desks       who answers what
    *_api       the desks: overview, nodes, queues, exchanges, bindings, messages, clients, vhosts,
                users, permissions, policies, parameters, limits, cluster, health, resources,
                definitions, pipelines …
    definitions_reading  what is imported, read without holding anybody up
    long_payload  what is published, likewise
    openapi     all of it described, from the routes the desks name
    view        what the broker holds, as JSON-able dicts (queue_rows, exchange_rows, client_rows);
                quiet, runs on the data loop
    portions    how much of sessions and channels one call on the data loop describes
    facts       what the server tells about its connections, and who publishes and gets for it
    listing     the query of a list, as RabbitMQ's API understands it
    access      who asks, and what they may see
    log_ins     how many, and a line for each that is refused
    control     what may be asked of the node itself: its log, its doors, its end
    audit_lines a line in the log for each change
    page        the status page: plain HTML, no script
    statistics/ rates and history: sampled in slices, kept in rings, added to rows
    metrics/    pages for Prometheus, on a port of their own too
    node_facts  what the operating system says about this process
    node_memory where its memory is
    start_screen  what a start prints

The data loop never waits for management.  Long lists are read in slices, each one short
call on the data loop; everything else (sorting, JSON, HTTP) happens on this side.
"""
