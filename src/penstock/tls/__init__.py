"""TLS of the listeners: contexts, the dates of certificates, and the users that they name."""
