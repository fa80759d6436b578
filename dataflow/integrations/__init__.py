"""Other people's tools: what they are told of a loader, in their own terms."""
