"""One node: assembly, boot, shutdown, listeners, reload; which protocol a client has (sessions)."""
