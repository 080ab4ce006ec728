// Package output detects failed writes to a command's standard output, which must fail the command.
package output

import "io"

// Checked is a writer that keeps the first error of a write: fmt's callers and cobra ignore it.
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
