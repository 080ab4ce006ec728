package main

import (
	"os"

	"golang.org/x/term"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
)

// narrow is the width where there is no terminal to ask.
const narrow = 120

// isTerminal returns what tells a terminal's width; nil: it is none.
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

// table is how to show one here. NO_COLOR: https://no-color.org.
func (o *options) table() show.Options {
	options := show.Options{Wide: o.output == "wide", Width: narrow}
	if o.terminal != nil {
		options.Width = o.terminal()
		options.Colour = o.getenv("NO_COLOR") == "" && o.getenv("TERM") != "dumb"
	}
	return options
}
