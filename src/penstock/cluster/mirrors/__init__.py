"""Mirrored queues: master and mirrors, synchronisation, promotion."""
