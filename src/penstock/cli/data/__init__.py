"""What a data directory has: audit and repair it, copy it, move it to or from another broker."""
