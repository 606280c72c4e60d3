"""The endpoints of the management API: one file for each kind of thing.

accounts  users, permissions, limits, the web UI's log-in
nodes     nodes, the cluster, health, operating
queues    queues, their messages, mirrors and members
"""
