"""The second accountant: rebuilds everything from the entries, by other code, and believes nothing."""
