"""The stages of an audit: replay, exact, sampled, canaries, and the check of the auditor itself."""
