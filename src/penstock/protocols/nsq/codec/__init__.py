"""The codec of NSQ's TCP protocol V2: bytes become commands, answers and messages become frames."""
