"""What the command returns when it does not end well."""

BAD_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143
