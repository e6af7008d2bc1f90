"""The protocols, each one member's part: what it posts in every round, and what it makes of the others'."""
