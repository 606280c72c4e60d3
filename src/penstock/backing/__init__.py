"""Where the messages of a queue rest, behind one interface.

interface.py   ``BackingQueue``: what a queue may ask for
ram_queue.py   all in memory, persistent messages in the message log as well
"""
