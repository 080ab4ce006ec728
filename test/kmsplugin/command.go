package kmsplugin

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// command is an action besides setting a fault.
type command struct {
	name, usage, what string
	run               func(p *Plugin, args []string) error
}

// commands returns the table of commands. Each fault is a command too.
func commands() []command {
	return []command{
		{"status", "status", "show the state, the faults and the counters as JSON",
			noArgs(func(*Plugin) error { return nil })},
		{"heal", "heal [FAULT]", "end one fault, or all",
			func(p *Plugin, args []string) error {
				switch len(args) {
				case 0:
					return p.ClearFaults()
				case 1:
					return p.ClearFault(args[0])
				}
				return fmt.Errorf("want one fault at most, got %q", args)
			}},
		{"return", "return", "end the crash: listen again", noArgs((*Plugin).Return)},
		{"restore-socket", "restore-socket", "restore the removed socket", noArgs((*Plugin).RestoreSocket)},
		{"rotate", "rotate", "make a new key, which encrypts from now on; old ones still decrypt",
			noArgs(func(p *Plugin) error {
				_, err := p.Rotate()
				return err
			})},
		{"reload", "reload", "take up the keys on disk, after another plugin on the same directory rotated",
			noArgs((*Plugin).Reload)},
		{"health", "health on|off", "let grpc.health.v1 answer SERVING, or Unimplemented",
			func(p *Plugin, args []string) error {
				if len(args) != 1 || (args[0] != "on" && args[0] != "off") {
					return fmt.Errorf("want on or off, got %q", args)
				}
				p.SetGRPCHealth(args[0] == "on")
				return nil
			}},
		{"reset-counters", "reset-counters", "reset the counters of calls",
			noArgs(func(p *Plugin) error {
				p.ResetCounters()
				return nil
			})},
	}
}

func noArgs(run func(p *Plugin) error) func(*Plugin, []string) error {
	return func(p *Plugin, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("takes no arguments, got %q", args)
		}
		return run(p)
	}
}

// Do runs a command by its name, as the control socket does: one of those
// that [Help] lists, or a fault to set.
func (p *Plugin) Do(name string, args ...string) error {
	for _, c := range commands() {
		if c.name != name {
			continue
		}
		if err := c.run(p, args); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	if _, err := faultKind(name); err != nil {
		return fmt.Errorf("no command or fault is called %q", name)
	}
	return p.SetFault(Fault{Name: name, Args: args})
}

// Help returns every command and every fault, one a line.
func Help() string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) {
		// A strings.Builder takes everything.
		_, _ = fmt.Fprintf(table, format, args...)
	}
	line("Commands:\n")
	for _, c := range commands() {
		line("  %s\t%s\n", c.usage, c.what)
	}
	line("\nFaults, active until healed; several may be:\n")
	for _, kind := range Faults() {
		line("  %s\t%s\n", kind.Usage(), kind.What)
	}
	_ = table.Flush()
	return text.String()
}
