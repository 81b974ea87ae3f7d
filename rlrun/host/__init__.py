"""Facts about this machine, one file a source. Paths of the machine are arguments, so that a test hands in a folder."""
