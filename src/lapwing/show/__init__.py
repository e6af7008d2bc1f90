"""One command for each idea of the field: computed now, with a text, a table, a picture and an argument."""
