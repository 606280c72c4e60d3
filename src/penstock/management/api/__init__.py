"""The endpoints of the management API: one file for each kind of thing."""
