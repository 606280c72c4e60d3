"""NSQ's TCP protocol V2: the session of a connection, its topic and its channel."""
