"""The figures that we publish, one command each."""
