"""The bundle of a release: a folder that a stranger can read, and verify with the ledger's public key."""
