"""What travels in a run: signed envelopes, sealed boxes, frames; and the table that all sit at."""
