"""NSQ's TCP protocol V2, without a socket: bytes here, commands and messages there.

ids         64-bit ids of messages, in nsqd's layout, many at a time
contents    a body becomes the content a message rests in; the parts of a content, by slicing
frames      answers, errors and messages as clients read them
commands    what the reader makes of bytes: runs of publishes and of FINs, other commands, faults
reader      bytes become commands
unfinished  what is said to a client that hung up in the middle of a command
identify    IDENTIFY: what a client asks for, what it gets
"""
