package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/stored"
)

const aboutStored = `Counts, in etcd, which stored objects need which key: of each resource of which any object
is encrypted, by provider and, of KMS v2, by KEK ID. It decrypts nothing, needs no plugin
and no API server, and only reads. With --etcd-servers-overrides, run it for each etcd.

A key may be deleted when no object of any cluster needs it, and no backup of etcd that you
may restore. Wait until KMSWriteKeyAgreed is True with the new key, or without an operator
3 minutes after preflight was ready: until then API servers may write with the former key.
Then rewrite each resource of the encryption config, not Secrets alone, and count again:

  kubectl get secrets,configmaps -A -o json | kubectl patch --type=merge -p '{}' -f -
  kubectl kms-health stored-keys --kek-id FORMER

Exit codes are those of status. With --kek-id: 0 if no object needs it (also if it is
misspelled), 1 if one does, 2 if it is not known: a value is not readable, KMS v1 is used, which
stores no KEK ID, or the ID is only a part of one in use, such as a key without its version.

Flags and their ETCDCTL_ variables are etcdctl's. Rights: a client certificate of etcd, which
may read everything.`

// storedKeys are the flags of stored-keys.
type storedKeys struct {
	environment
	request stored.Request
	kekID   string
	output  string
}

func newStoredKeys(e environment) *cobra.Command {
	s := &storedKeys{environment: e}
	cmd := &cobra.Command{
		Use:   "stored-keys",
		Short: "Show which stored data in etcd still needs which key",
		Long:  aboutStored,
		Example: `  # On a control plane node of kubeadm.
  cd /etc/kubernetes/pki
  kubectl kms-health stored-keys --cacert etcd/ca.crt --cert apiserver-etcd-client.crt --key apiserver-etcd-client.key`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&s.request.Endpoint, "endpoints", cmp.Or(os.Getenv("ETCDCTL_ENDPOINTS"), "127.0.0.1:2379"),
		"the `address` of one member of etcd")
	f.StringVar(&s.request.Cacert, "cacert", os.Getenv("ETCDCTL_CACERT"), "the CA of etcd's certificate, a PEM `file`")
	f.StringVar(&s.request.Cert, "cert", os.Getenv("ETCDCTL_CERT"), "the client certificate, a PEM `file`")
	f.StringVar(&s.request.Key, "key", os.Getenv("ETCDCTL_KEY"), "the client certificate's key, a PEM `file`")
	f.StringSliceVar(&s.request.Prefixes, "etcd-prefix", nil, "kube-apiserver's `prefixes`; not set: those that exist of "+
		strings.Join(stored.DefaultPrefixes, ", "))
	f.StringSliceVar(&s.request.Resources, "resource", nil, "read these `resources` alone, as the table names them")
	f.StringVar(&s.kekID, "kek-id", "", "show what needs this KEK `id` alone; the exit code is 1 if anything does")
	addOutput(cmd, &s.output, "table", "json", "yaml")
	f.DurationVar(&s.request.Timeout, "timeout", 10*time.Second, "how long to wait for each answer of etcd")
	return cmd
}

func (s *storedKeys) run(cmd *cobra.Command) error {
	// No object has an ID as an unset variable, jq without -r, or status shows it, so it would be reported as not needed.
	if cmd.Flags().Changed("kek-id") && (s.kekID == "" || strings.ContainsAny(s.kekID, `"'…`)) {
		return fmt.Errorf("--kek-id: %q is empty, in quotes, or shortened; kubectl kms-health status -o wide shows all of it",
			s.kekID)
	}
	const clearLine = "\r\x1b[K"
	if s.terminal {
		s.request.Progress = func(resource string, objects int) {
			fmt.Fprintf(s.stderr, clearLine+"Read %d objects, now %s", objects, show.Lines(resource))
		}
	}
	inventory, err := stored.Read(cmd.Context(), s.request)
	if s.terminal {
		fmt.Fprint(s.stderr, clearLine)
	}
	if err != nil {
		return err
	}
	if s.kekID != "" {
		inventory.Select(s.kekID)
	}
	return s.print(s.output, inventory, show.Stored(inventory), inventory.Verdict)
}
