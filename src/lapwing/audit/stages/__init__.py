"""The stages of an audit: each tries to break a claim in its own way."""
