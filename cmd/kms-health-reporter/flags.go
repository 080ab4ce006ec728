package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/reporter"
)

const defaultConfig = "/etc/kms-health/config/config.yaml"

type options struct {
	reporter.Options
	reports                                string // where --output writes them
	validate, printDefaults, once, version bool
	help                                   func() string
}

const about = `kms-health-reporter probes the KMS v2 plugins that a file names, and reports on them: to
the API server's operator resource, to standard output, and over HTTP, each if
configured by the file or a flag.

It starts, and continues, without the file, the plugins and the API server, and follows
every change of the file without a restart. SIGTERM and SIGINT end it within 2 seconds, a
second one at once; SIGHUP does not, nor does an output that is closed or not read.

Usage:
  kms-health-reporter [--config FILE] [--node-name NODE] [--output -]
  kms-health-reporter --once [--config FILE]           # the exit code is the result
  kms-health-reporter --validate [--config FILE]       # check a file
  kms-health-reporter --print-defaults > config.yaml   # a file that explains every field

Exit codes:
  0  ended by SIGTERM or SIGINT; --validate: the file is valid; --once: every plugin of
     the file, at least one, is healthy
  1  --validate: the file has errors; --once: a plugin is not healthy
  2  --once: not known: a plugin was not observed and none is unhealthy, or there is none
  3  the flags are wrong, the file cannot be read, the output cannot be written; --once:
     the file has errors

Environment:
  KMS_HEALTH_NODE             the default of --node-name
  KMS_HEALTH_POD_UID          the UID of the pod, which reports name as their writer
  KMS_HEALTH_CONFIG_HASH      of the plugin set that the pod was created for; another one
                              is logged, shown by /healthz?verbose, and a metric
  KMS_HEALTH_API_SERVER_USER  the API server's user, such as "0:0 groups 0 DAC_OVERRIDE":
                              a socket that is denied to another user is no verdict

Flags:
`

func parseFlags(args []string, getenv func(string) string) (*options, error) {
	o := &options{Options: reporter.Options{
		PodUID: getenv(contract.PodUIDVariable), ConfigHash: getenv(contract.ConfigHashVariable)}}
	fs := pflag.NewFlagSet("kms-health-reporter", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {} // main prints it, to stdout or stderr
	fs.StringVar(&o.ConfigFile, "config", defaultConfig,
		"the configuration `file`; it may appear later; - is standard input, with --validate and --once")
	fs.StringVar(&o.Node, "node-name", getenv(contract.NodeVariable),
		"the `name` of the node that is reported on, needed to write to an operator resource; by default $"+
			contract.NodeVariable)
	fs.StringVar(&o.StateFile, "state", "",
		"a `file` that keeps samples of round trips, so that a key that is replaced while the reporter restarts is "+
			"detected; its folder must be writable; by default they end with the process; not with --once")
	fs.StringVar(&o.reports, "output", "", "`-` writes a line of JSON to standard output after every round of probes")
	fs.BoolVar(&o.once, "once", false, "probe every plugin of the file once, print the JSON array, and end; without "+
		"earlier samples, so it cannot see that a key was replaced or lost")
	fs.BoolVar(&o.validate, "validate", false,
		"check the file, print ok and the configuration with its defaults, or every error, and end")
	fs.BoolVar(&o.printDefaults, "print-defaults", false, "print a sample file that explains every field, and end")
	fs.BoolVar(&o.version, "version", false, "print the version, and end")
	fs.AddGoFlag(&flag.Flag{Name: "v", Value: new(klog.Level), DefValue: "0", Usage: "the `level` of detail of the log"})
	o.help = func() string { return about + fs.FlagUsagesWrapped(96) }

	if err := fs.Parse(args); err != nil {
		return o, err
	}
	modes := 0
	for _, is := range []bool{o.once, o.validate, o.printDefaults, o.version} {
		if is {
			modes++
		}
	}
	o.Node = strings.ToLower(o.Node) // as a kubelet does with its host's name
	why := validation.IsDNS1123Subdomain(o.Node)
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: only flags are read, such as --config FILE", fs.Arg(0))
	case o.reports != "" && o.reports != "-":
		return o, fmt.Errorf("--output: %q must be -, which is standard output; redirect that to write a file", o.reports)
	case modes > 1 || modes == 1 && (o.reports != "" || o.StateFile != ""):
		return o, errors.New("of --once, --validate, --print-defaults and --version only one can be used, and that " +
			"without --output and --state")
	case o.Node != "" && modes == 0 && len(why) > 0:
		return o, fmt.Errorf("--node-name (or $%s): %q is not the name of a node: %s", contract.NodeVariable, o.Node,
			strings.Join(why, "; "))
	case o.ConfigFile == "":
		return o, errors.New("--config: is empty, must be a path")
	case o.ConfigFile == filewatch.Stdin && modes == 0:
		return o, errors.New("--config: standard input is read by --validate and --once only: a running reporter " +
			"follows a file")
	}
	return o, nil
}
