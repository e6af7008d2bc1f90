"""The web console: pages made on the server."""
