"""The pyz driven from outside: real bash, processes, sockets and terminals, each scenario in a box of its own."""
