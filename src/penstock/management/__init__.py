"""Management looks in: an HTTP API in the dialect of RabbitMQ 3.10, and a status page.

    app         the HTTP server: its own thread and event loop, routes, errors, log-in
    view        what the broker holds, as JSON-able dicts; quiet, runs on the data loop
    facts       what the server tells about its connections
    limits_api  limits of virtual hosts and users
    vhost_api   one virtual host: made, described, traced
    listing     filter, sort, page and project lists the way RabbitMQ's API does
    access      who asks, and what they may see
    page        the status page: plain HTML, no script
    node_facts  what the operating system says about this process
    start_screen  what a start prints

The data loop never waits for management.  Long lists are read in slices, each one short
call on the data loop; everything else (sorting, JSON, HTTP) happens on this side.
"""
