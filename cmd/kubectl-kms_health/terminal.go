package main

import (
	"math"
	"os"
	"strconv"

	"golang.org/x/term"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
)

// defaultWidth is the width if stdout is not a terminal, or its width is not known.
const defaultWidth = 120

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

// show returns how to show a status. Without a terminal that does not depend on the environment.
// NO_COLOR: https://no-color.org.
func (o *options) show() show.Options {
	options := show.Options{Wide: o.output == "wide", Width: defaultWidth}
	if o.terminal != nil {
		options.Colour = o.getenv("NO_COLOR") == "" && o.getenv("TERM") != "dumb"
		if n, err := strconv.Atoi(o.getenv("COLUMNS")); err == nil && n > 0 {
			options.Width = n
		} else if n := o.terminal(); n > 0 {
			options.Width = n
		}
	}
	if options.Wide {
		options.Width = math.MaxInt32
	}
	return options
}
