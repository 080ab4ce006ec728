package main

import (
	"math"
	"os"
	"strconv"

	"golang.org/x/term"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
)

// defaultWidth is the width if stdout is not a terminal, or its width is not known.
const defaultWidth = 80

// isTerminal returns a function for the terminal's width, 0 if that is not known; nil: it
// is not a terminal.
func isTerminal(f *os.File) func() int {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return nil
	}
	return func() int {
		if width, _, err := term.GetSize(fd); err == nil && width > 0 {
			return width
		}
		return 0
	}
}

// width is that of the output: on a terminal that of COLUMNS, else the terminal's. Without
// one it does not depend on the environment.
func (o *options) width() int {
	if o.terminal == nil {
		return defaultWidth
	}
	if n, err := strconv.Atoi(o.getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if n := o.terminal(); n > 0 {
		return n
	}
	return defaultWidth
}

// table returns the options of a table. NO_COLOR: https://no-color.org.
func (o *options) table() show.Options {
	options := show.Options{Wide: o.output == "wide", NoHeaders: o.noHeaders, Width: o.width()}
	if options.Wide {
		options.Width = math.MaxInt32
	}
	if o.terminal != nil {
		options.Fits = true
		options.Colour = o.getenv("NO_COLOR") == "" && o.getenv("TERM") != "dumb"
	}
	return options
}
