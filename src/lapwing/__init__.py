"""Lapwing: differential privacy for every trust model, on one lifetime ledger."""
