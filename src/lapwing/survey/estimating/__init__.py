"""From reports to estimates: unbiased shares, means, orders, distributions and words, with intervals."""
