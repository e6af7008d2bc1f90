"""The stages of an audit: ways to attack a claim, cheapest first."""
