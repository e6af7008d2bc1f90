"""The policy of a data set as plain values: who is protected, tables, columns, bounds and budget."""
