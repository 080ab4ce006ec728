package kmsplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Fault is one way to be unhealthy, as a user names it: the name of a [FaultKind]
// and its arguments. Arguments that may be omitted may be missing.
type Fault struct {
	Name string   `json:"name"`
	Args []string `json:"args,omitempty"`
}

// String returns the fault as one would type it, quoting what needs it.
func (f Fault) String() string {
	words := []string{f.Name}
	for _, arg := range f.Args {
		if arg == "" || strings.ContainsFunc(arg, func(r rune) bool { return r <= ' ' || r == '"' || r == 0x7f }) {
			arg = fmt.Sprintf("%q", arg)
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

// ParseFault reads a fault from one line: the name, then its arguments, of
// which the last takes the rest of the line, spaces and all.
func ParseFault(line string) (Fault, error) {
	name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	kind, err := faultKind(name)
	if err != nil {
		return Fault{}, err
	}
	f := Fault{Name: name}
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		arg := rest
		if len(f.Args)+1 < len(kind.Params) {
			arg, rest, _ = strings.Cut(rest, " ")
		} else {
			rest = ""
		}
		f.Args = append(f.Args, arg)
	}
	_, err = compile([]Fault{f})
	return f, err
}

// FaultsFile is a file in the state directory, with a fault in each line, as ParseFault
// reads it. They are active when a plugin starts: so a fault survives the restart of a
// node.
const FaultsFile = "faults"

func readFaults(dir string) ([]Fault, error) {
	content, err := os.ReadFile(filepath.Join(dir, FaultsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var faults []Fault
	for line := range strings.Lines(string(content)) {
		f, err := ParseFault(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", FaultsFile, err)
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// Param is an argument of a fault. It may be omitted if it is Optional, and
// then is Default. The last one takes all further words.
type Param struct {
	Name     string
	Optional bool
	Default  string
}

// FaultKind is a row of the table of faults.
type FaultKind struct {
	Name   string
	Params []Param
	// What it does, in one line.
	What string
	// Example is a set of arguments that is good to see the fault with. It is
	// complete: Fault{Name, Example} can be set.
	Example []string
	// Calls are those whose answer the Example changes.
	Calls []Call

	// apply writes the fault, its arguments complete, into a behaviour.
	apply func(b *behaviour, args []string) error
}

// Usage returns the name with its arguments, optional ones in brackets.
func (k FaultKind) Usage() string {
	words := []string{k.Name}
	for _, param := range k.Params {
		if param.Optional {
			words = append(words, "["+param.Name+"]")
		} else {
			words = append(words, param.Name)
		}
	}
	return strings.Join(words, " ")
}

// faultKind finds a row by its name.
func faultKind(name string) (FaultKind, error) {
	for _, kind := range Faults() {
		if kind.Name == name {
			return kind, nil
		}
	}
	return FaultKind{}, fmt.Errorf("no fault is called %q", name)
}

// join joins the words that are too many into the last argument, so that a
// text need not be quoted. It returns a copy.
func (k FaultKind) join(args []string) []string {
	joined := slices.Clone(args)
	if n := len(k.Params); n > 0 && len(args) > n {
		joined = append(joined[:n-1], strings.Join(args[n-1:], " "))
	}
	return joined
}

// complete joins what is too much, and fills in what is missing.
func (k FaultKind) complete(args []string) ([]string, error) {
	for _, arg := range args {
		if !utf8.ValidString(arg) {
			return nil, fmt.Errorf("%s: argument %q is not UTF-8, and could not be sent", k.Name, arg)
		}
	}
	full := k.join(args)
	if len(full) > len(k.Params) {
		return nil, fmt.Errorf("%s takes no arguments, got %q", k.Name, args)
	}
	for _, param := range k.Params[len(full):] {
		if !param.Optional {
			return nil, fmt.Errorf("%s needs %s: %s", k.Name, param.Name, k.Usage())
		}
		full = append(full, param.Default)
	}
	return full, nil
}
