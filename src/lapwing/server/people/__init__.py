"""People: accounts, roles, passwords, sessions, tokens, and OpenID Connect."""
