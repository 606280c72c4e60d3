"""Messages the broker itself publishes: dead letters, delayed ones, staged batches, replies."""
