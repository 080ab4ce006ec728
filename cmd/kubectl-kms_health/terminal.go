package main

import (
	"os"

	"golang.org/x/term"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
)

// narrow is the width if stdout is not a terminal.
const narrow = 120

// isTerminal returns a function for the terminal's width; nil: it is not a terminal.
func isTerminal(f *os.File) func() int {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return nil
	}
	return func() int {
		if width, _, err := term.GetSize(fd); err == nil && width > 0 {
			return width
		}
		return narrow
	}
}

// table returns the options of a table. NO_COLOR: https://no-color.org.
func (o *options) table() show.Options {
	options := show.Options{Wide: o.output == "wide", Width: narrow}
	if o.terminal != nil {
		options.Width = o.terminal()
		options.Colour = o.getenv("NO_COLOR") == "" && o.getenv("TERM") != "dumb"
	}
	return options
}
