package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// knownCommand rejects an unknown command, with the one that it is similar to.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return fmt.Errorf("unknown command %q%s", args[0], didYouMean(args[0], names))
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if cmd.Flags().Lookup("node") != nil {
		hint = "; a node is selected by --node, an API server by --target"
	}
	return fmt.Errorf("%s takes no argument, such as %q%s", cmd.Name(), args[0], hint)
}

func oneNode(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes the name of one node, not %d names", cmd.Name(), len(args))
	}
	return nil
}

// suggestFlag adds to the error about an unknown flag the one that it is similar to.
func suggestFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return fmt.Errorf("%w%s", err, didYouMean("--"+unknown.GetSpecifiedName(), names))
}

// didYouMean is a question that names the choice most similar to a word; empty if none is.
func didYouMean(word string, choices []string) string {
	best, least := "", len(word)/3+2
	for _, choice := range choices {
		n := distance(strings.ToLower(word), strings.ToLower(choice))
		if len(strings.TrimLeft(word, "-")) > 1 && strings.HasPrefix(choice, word) {
			n = 1
		}
		if n < least {
			best, least = choice, n
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// maxWord bounds the words that are compared, in bytes.
const maxWord = 256

// distance is how many letters must be inserted, removed or replaced to make a of b, or
// exchanged with the next one.
func distance(a, b string) int {
	a, b = a[:min(len(a), maxWord)], b[:min(len(b), maxWord)]
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
