package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// node is the id of a node's first process.
func node(name string) (int, error) {
	s, err := readState()
	if err != nil {
		return 0, err
	}
	if !s.runs() {
		return 0, errors.New("the cluster has died: make cluster-down removes what it left")
	}
	if len(s.Nodes) == 0 {
		return 0, errors.New("the cluster is not up yet")
	}
	pid, found := s.Nodes[name]
	if !found {
		return 0, fmt.Errorf("no node %q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(s.Nodes)), ", "))
	}
	return pid, nil
}

func newExec() *cobra.Command {
	return &cobra.Command{
		Use: "exec NODE -- COMMAND [ARGUMENT...]", Short: "Run a command in a node", Args: cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			pid, err := node(args[0])
			if err != nil {
				return err
			}
			cmd := exec.Command("nsenter", append([]string{"--target", strconv.Itoa(pid), "--all", "--wdns=/", "--"}, args[1:]...)...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
			return cmd.Run()
		},
	}
}

func newPlugin() *cobra.Command {
	return &cobra.Command{
		Use:   "plugin NODE PLUGIN COMMAND [ARGUMENT...]",
		Short: "Give a command to a KMS plugin of a node",
		Long: `Gives a command to a KMS plugin of a node: kube-apiserver-KEY, openshift-apiserver
or oauth-apiserver.

` + kmsplugin.Help(),
		Args: cobra.MinimumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := node(args[0])
			if err != nil {
				return err
			}
			dir := filepath.Join("/proc", strconv.Itoa(pid), "root", cluster.StateDir)
			var pattern string
			switch key, isKube := strings.CutPrefix(args[1], cluster.APIServerName+"-"); {
			case isKube:
				pattern = "kms-" + key
			case args[1] == apiservers.OpenShift.Name, args[1] == apiservers.OAuth.Name:
				pattern = args[1] + "-*"
			}
			found, _ := filepath.Glob(filepath.Join(dir, pattern+".control"))
			if pattern == "" || len(found) == 0 {
				return fmt.Errorf("no plugin %q on %s: there are %s-KEY, %s and %s, where KMS is on", args[1], args[0],
					cluster.APIServerName, apiservers.OpenShift.Name, apiservers.OAuth.Name)
			}
			client, err := kmsplugin.NewClient(found[len(found)-1])
			if err != nil {
				return err
			}
			state, err := client.Do(cmd.Context(), args[2], args[3:]...)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), state.Describe(args[2]))
			return nil
		},
	}
}
