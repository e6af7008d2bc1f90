"""One door to the data: a service with accounts, an HTTP API and a web console."""
