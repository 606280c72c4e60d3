"""``penstock queue``: declare one queue, look into it, move its messages, see its mirrors."""
