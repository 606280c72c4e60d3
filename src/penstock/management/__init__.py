"""Management: an HTTP API in the dialect of RabbitMQ 3.10, metrics, and the web UI.

    app         the HTTP server: a thread and an event loop of its own
    routes      all endpoints in order
    api         the endpoints, one file for each kind of thing
    http        what endpoints share: log-in, lists, paging, connections, OpenAPI
    rows        queues, exchanges, connections, storage as JSON-able dicts (on the data loop)
    facts       what the node tells of its sessions, memory and storage
    statistics  rates and history: sampled in slices, kept in rings of fixed size
    metrics     pages for Prometheus
    ui          the web UI's files: a page for each address, panels as tabs of a queue, shared lib

The data loop never waits for management.  Long lists are read in slices, each one short
call on the data loop; everything else (sorting, JSON, HTTP) happens on this side.
"""
