"""What the broker tells management about sessions, memory and storage: plain records."""
