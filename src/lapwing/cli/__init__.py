"""The `lapwing` command."""
