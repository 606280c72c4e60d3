"""The message store: large contents, one copy each, with a count of references."""
