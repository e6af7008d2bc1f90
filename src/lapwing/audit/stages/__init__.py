"""The stages of an audit: each is one way to attack a claim."""
