"""What a third party can check: the tree over all entries, seals, statements, proofs of single receipts."""
