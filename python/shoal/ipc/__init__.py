"""How objects pass from process to process: their pickles, and what crosses by handle instead of by value."""
