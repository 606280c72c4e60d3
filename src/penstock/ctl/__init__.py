"""The ``penstockctl`` command: rabbitmqctl's words, for a Penstock.

    main        from a command line to an exit code
    verbs       the table of verbs: section, usage, options, who carries it out
    options     command lines as RabbitMQ's programs read them
    output      tables, CSV, JSON, and Erlang's way of writing values
    call        what a verb's function gets: words, options, the node
    faults      errors, and their exit codes
    the others  the verbs, a file per section

Runbooks and scripts that were written for ``rabbitmqctl``, ``rabbitmq-diagnostics`` and
``rabbitmq-upgrade`` go on to work.  It talks HTTP to the management API and starts in a tenth of
a second, so it imports no more than it must: no click, no aiohttp, and a verb's file only when
the verb is called.
"""
