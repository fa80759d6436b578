"""How samples get from the store into batches: plan, fetch, read, assemble, deliver, and the clocks of these stages."""
