"""The man pages and the shell completions, made from the same tables as --help by `./build.sh docs`."""
