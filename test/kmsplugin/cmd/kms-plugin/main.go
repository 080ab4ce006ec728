// kms-plugin is a KMS v2 plugin for development that can be made unhealthy while it runs. `kms-plugin --endpoint …
// --state-dir … --control PATH` serves, and `kms-plugin ctl --control PATH COMMAND` sends it a command.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

const usage = `A KMS v2 plugin for development. Its keys lie on disk in the clear.

Usage:
  kms-plugin --endpoint unix:///PATH --state-dir DIR [--control PATH]
  kms-plugin ctl --control PATH COMMAND [ARGUMENT...]   give a command to a running one

`

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctl := len(args) > 0 && args[0] == "ctl"
	flags := pflag.NewFlagSet("kms-plugin", pflag.ContinueOnError)
	flags.Usage = func() { fmt.Print(usage, kmsplugin.Help(), "\nFlags:\n", flags.FlagUsages()) }
	flags.SetInterspersed(false) // an argument of a fault may begin with a dash
	var o kmsplugin.Options
	flags.StringVar(&o.Control, "control", "", "path of the plugin's control socket; none if empty")
	if ctl {
		args = args[1:]
	} else {
		flags.StringVar(&o.Endpoint, "endpoint", "", "where to serve: unix:///path")
		flags.StringVar(&o.StateDir, "state-dir", "", "directory for the keys; made if missing")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	command := flags.Args()
	switch {
	case !ctl && len(command) > 0:
		return fmt.Errorf("unexpected argument %q", command[0])
	case !ctl:
		return serve(o)
	case o.Control == "" || len(command) == 0:
		return errors.New("want --control PATH and a command; see kms-plugin ctl --help")
	}
	state, err := kmsplugin.Client(o.Control).Do(command[0], command[1:]...)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(state)
}

// serve runs a plugin until SIGTERM.
func serve(o kmsplugin.Options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	plugin, err := kmsplugin.Start(o)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "serving at", plugin.Endpoint(), "with key", plugin.KeyID())
	<-ctx.Done()
	return plugin.Close()
}
