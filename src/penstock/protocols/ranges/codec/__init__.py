"""The range protocol on the line: frames, requests and replies."""
