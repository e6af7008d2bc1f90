"""Test vectors: what others check us with, and themselves."""
