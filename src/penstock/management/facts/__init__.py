"""Facts about sessions, memory and storage, given to management as plain records."""
