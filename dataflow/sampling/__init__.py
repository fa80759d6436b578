"""Which sample is next: pure functions of sizes, seeds and numbers. No I/O, no clock, no global random state."""
