"""One file a command: takes options, calls steps, prints. Nothing here judges or launches by itself."""
