"""What a log says: its tail in bytes, its metrics in numbers."""
