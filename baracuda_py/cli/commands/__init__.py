"""One module per command: SUMMARY, arguments(parser) and run(arguments) -> exit code."""
