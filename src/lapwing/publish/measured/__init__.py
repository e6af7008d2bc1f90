"""Measuring private rows: the only code of publishing that reads them. Everything is charged before."""
