"""Binding: from the text of a query to relations and typed expressions with known bounds."""
