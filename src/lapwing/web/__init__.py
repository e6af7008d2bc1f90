"""HTTP: running a server, TLS, headers, limits of connections."""
