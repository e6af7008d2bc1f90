"""Long work in processes of its own: a queue, progress, and what was done."""
