"""NSQ's TCP protocol V2 on the line: bytes become commands, answers and messages become frames."""
