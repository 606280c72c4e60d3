"""Where log-ins of tests come from."""

from penstock.broker.rules.judges import Source
from penstock.broker.rules.log_ins import HTTP

HERE = Source(HTTP, "HTTP", "127.0.0.1", True)
AFAR = Source(HTTP, "HTTP", "10.0.0.7", False)
