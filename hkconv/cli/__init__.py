"""The command line, one file a command: it parses, calls the library and prints."""
