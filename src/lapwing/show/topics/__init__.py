"""How topics are computed: one module for each idea. A module is imported when its topic runs."""
