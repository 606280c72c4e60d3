"""Endpoints of queues and their messages, mirrors and members."""
