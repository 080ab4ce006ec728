// Package output is a command's standard output, of which a failed write fails the command.
package output

import "io"

// Checked is a writer that keeps the first error: fmt and cobra ignore those of what they print.
type Checked struct {
	io.Writer
	Err error
}

func (c *Checked) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	if c.Err == nil {
		c.Err = err
	}
	return n, err
}
