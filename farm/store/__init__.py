"""Where artifacts live: the file format, the directory and its locks."""
