// kms-plugin is a KMS v2 plugin for development, which can be made unhealthy while
// it runs: `kms-plugin --endpoint … --state-dir … --control PATH` serves, and
// `kms-plugin ctl --control PATH COMMAND` gives it commands.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

const (
	serveUsage = `A KMS v2 plugin for development. Its keys lie on disk in the clear.

Usage:
  kms-plugin --endpoint unix:///PATH --state-dir DIR [--control PATH] [flags]
  kms-plugin ctl --control PATH COMMAND [ARGUMENT...]   (see kms-plugin ctl --help)
`
	ctlUsage = `Gives a command to a running kms-plugin.

Usage:
  kms-plugin ctl --control PATH COMMAND [ARGUMENT...]

`
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	run, args := serve, os.Args[1:]
	if len(args) > 0 && args[0] == "ctl" {
		run, args = ctl, args[1:]
	}
	err := run(ctx, args)
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// newFlags returns flags whose --help goes to stdout.
func newFlags(usage string) *pflag.FlagSet {
	flags := pflag.NewFlagSet("kms-plugin", pflag.ContinueOnError)
	flags.Usage = func() { _, _ = fmt.Print(usage, "\nFlags:\n", flags.FlagUsages()) }
	return flags
}

// serve is a plugin until ctx ends.
func serve(ctx context.Context, args []string) (err error) {
	o := kmsplugin.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flags := newFlags(serveUsage)
	flags.StringVar(&o.Endpoint, "endpoint", "", "where to serve: unix:///path, or unix:///@name for an abstract socket")
	flags.StringVar(&o.StateDir, "state-dir", "", "directory for the keys; made if missing")
	control := flags.String("control", "", "path of the control socket; none if empty")
	grpcHealth := flags.Bool("grpc-health", false, "answer grpc.health.v1 (most plugins do not)")
	faults := flags.StringArray("fault", nil,
		`a fault to start with, such as "unhealthy vault is sealed"; may be given again`)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for _, line := range *faults {
		fault, err := kmsplugin.ParseFault(line)
		if err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
		o.Faults = append(o.Faults, fault)
	}

	plugin, err := kmsplugin.Start(o)
	if err != nil {
		return err
	}
	plugin.GRPCHealth.Store(*grpcHealth)
	defer func() { err = errors.Join(err, plugin.Close()) }()
	if *control != "" {
		server, err := kmsplugin.ServeControl(plugin, *control)
		if err != nil {
			return err
		}
		// Closed before the plugin, so that no command reaches a closed plugin.
		defer func() { _ = server.Close() }()
	}
	o.Log.Info("Serving", "endpoint", plugin.Endpoint(), "keyID", plugin.KeyID())
	<-ctx.Done()
	o.Log.Info("Stopping")
	return nil
}

// ctl runs one command in a plugin of another process, and prints the state
// as JSON for "status", else one line.
func ctl(ctx context.Context, args []string) error {
	flags := newFlags(ctlUsage + kmsplugin.Help())
	flags.SetInterspersed(false) // a text may begin with a dash
	control := flags.String("control", "", "path of the plugin's control socket")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *control == "" || flags.NArg() == 0 {
		return errors.New("want --control PATH and a command; see kms-plugin ctl --help")
	}
	client, err := kmsplugin.NewClient(*control)
	if err != nil {
		return err
	}
	name := flags.Arg(0)
	state, err := client.Do(ctx, name, flags.Args()[1:]...)
	if err != nil {
		return err
	}
	if name == "status" {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		return out.Encode(state)
	}
	fmt.Printf("%s: key %s, listening %t, faults %v\n", state.Endpoint, state.KeyID, state.Listening, state.Faults)
	return nil
}
