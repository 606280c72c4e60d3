"""The protocol between nodes on the line: frames, hello, requests about queues and mirrors."""
