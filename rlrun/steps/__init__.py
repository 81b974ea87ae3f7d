"""The launch, step by step: each file a function from values to values, none of which prints."""
