package filewatch

// Read returns the content of the file once, under the rules of a Watcher.
func Read(path string, maxSize int64) Content { return read(path, maxSize) }
