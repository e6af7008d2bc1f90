"""Questions: from SQL text to relations and typed expressions with known bounds."""
