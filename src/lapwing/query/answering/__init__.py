"""From exact sums to noisy answers: shares, noise, estimates, intervals."""
