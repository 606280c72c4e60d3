"""Guaranteed multicast among the copies of one queue: ring, views, codec."""
