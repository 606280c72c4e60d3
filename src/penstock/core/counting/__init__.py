"""What is counted where it passes, and what the counts say: rates, times, the bottleneck."""
