"""What a broker has declared, its users and policies, its cluster, and the trail of changes."""
