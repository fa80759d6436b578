"""Other projects, each used as its own documents recommend for speed; run with an interpreter that has them."""
