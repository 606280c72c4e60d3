"""Events of the broker: their kinds, the book in which they wait, lines that are left out."""
