"""One node: assembly of all parts, boot and shutdown in order, listeners, reload, supervision."""
