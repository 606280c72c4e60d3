"""What the range protocol makes of messages; its frames are in ``penstock_ranges``."""
