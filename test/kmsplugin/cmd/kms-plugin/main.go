// kms-plugin is a KMS v2 plugin for development, which can be made unhealthy while
// it runs: `kms-plugin --endpoint … --state-dir … --control PATH` serves, and
// `kms-plugin ctl --control PATH COMMAND` gives it commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

const usage = `A KMS v2 plugin for development. Its keys lie on disk in the clear.

Usage:
  kms-plugin --endpoint unix:///PATH --state-dir DIR [--control PATH] [flags]
  kms-plugin ctl --control PATH COMMAND [ARGUMENT...]   give a command to a running one

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	run, args := serve, os.Args[1:]
	if len(args) > 0 && args[0] == "ctl" {
		run, args = ctl, args[1:]
	}
	flags := pflag.NewFlagSet("kms-plugin", pflag.ContinueOnError)
	flags.Usage = func() { fmt.Print(usage, kmsplugin.Help(), "\nFlags:\n", flags.FlagUsages()) }
	control := flags.String("control", "", "path of the plugin's control socket; none if empty")
	err := run(ctx, flags, args, control)
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// serve is a plugin until ctx ends.
func serve(ctx context.Context, flags *pflag.FlagSet, args []string, control *string) (err error) {
	o := kmsplugin.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flags.StringVar(&o.Endpoint, "endpoint", "", "where to serve: unix:///path")
	flags.StringVar(&o.StateDir, "state-dir", "", "directory for the keys; made if missing")
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
	o.Control = *control
	plugin, err := kmsplugin.Start(o)
	if err != nil {
		return err
	}
	plugin.GRPCHealth.Store(*grpcHealth)
	defer func() { err = errors.Join(err, plugin.Close()) }()
	o.Log.Info("Serving", "endpoint", plugin.Endpoint(), "keyID", plugin.KeyID())
	<-ctx.Done()
	o.Log.Info("Stopping")
	return nil
}

// ctl runs one command in a plugin of another process, and prints the state.
func ctl(ctx context.Context, flags *pflag.FlagSet, args []string, control *string) error {
	flags.SetInterspersed(false) // a text may begin with a dash
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
	state, err := client.Do(ctx, flags.Arg(0), flags.Args()[1:]...)
	if err == nil {
		fmt.Println(state.Describe(flags.Arg(0)))
	}
	return err
}
