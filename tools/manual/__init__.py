"""The man pages and the completion of shells, from the tables that --help is from: `./build.sh docs`."""
