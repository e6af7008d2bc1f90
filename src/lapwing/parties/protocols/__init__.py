"""Protocols that open a sum of members' noised values: pure state machines without input or output."""
