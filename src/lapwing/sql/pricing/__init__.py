"""Prices: the shares of ε and δ of a question, the errors that they give, and the plan."""
