"""What a question is made of, once it is bound: kinds of values, expressions, relations."""
