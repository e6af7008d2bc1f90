"""Census tables: one noisy measurement of every level of a spine, and consistent tables made from it."""
