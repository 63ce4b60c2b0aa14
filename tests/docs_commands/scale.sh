. tests/docs_commands/operations.sh
