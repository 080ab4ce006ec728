package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/source"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// operatorNamespaces are the namespaces of the shipped manifests.
var operatorNamespaces = []string{contract.KubernetesNamespace, contract.OperatorNamespace}

// options are the flags shared by the commands.
type options struct {
	environment

	kubeconfig, context string
	user                clientcmdapi.AuthInfo // whom to impersonate
	timeout             time.Duration
	operatorNamespace   string

	targets, nodes []string
	names          []string // those of targets that were given by the target's name
	ownOnly        bool     // the cluster has KMSHealths, and no operator resource
	files          []string
	at             string
	output         string
	noHeaders      bool
}

// clusterFlags select the cluster.
func (o *options) clusterFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "a kubeconfig `file`; not set: $KUBECONFIG, else that of kubectl")
	f.StringVar(&o.context, "context", "", "the `name` of a context of it; not set: the current one")
	f.StringVar(&o.user.Impersonate, "as", "", "the `user` to impersonate")
	f.StringArrayVar(&o.user.ImpersonateGroups, "as-group", nil, "a `group` to impersonate; may be repeated")
	f.StringVar(&o.user.ImpersonateUID, "as-uid", "", "the `UID` to impersonate")
	f.DurationVar(&o.timeout, "request-timeout", 10*time.Second, "give up on an API server that does not answer for so long")
	f.StringVar(&o.operatorNamespace, "operator-namespace", "", "the operator's `namespace`, which has its Lease; not set: "+strings.Join(operatorNamespaces, ", then "))
	_ = cmd.MarkFlagFilename("kubeconfig")
	_ = cmd.RegisterFlagCompletionFunc("context", o.completeContexts)
	for _, name := range []string{"operator-namespace", "as", "as-group", "as-uid", "request-timeout"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
}

// selectFlags select targets and nodes.
func (o *options) selectFlags(cmd *cobra.Command, nodes bool) {
	f := cmd.Flags()
	f.StringArrayVar(&o.targets, "target", nil, "only this `target`, one of "+strings.Join(contract.ResourceNames(), ", ")+"; or kmshealths/NAME, elsewhere than on OpenShift; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("target", cobra.FixedCompletions(contract.ResourceNames(), cobra.ShellCompDirectiveNoFileComp))
	if nodes {
		f.StringArrayVar(&o.nodes, "node", nil, "only the node of this `name`; may be repeated")
		_ = cmd.RegisterFlagCompletionFunc("node", o.completeNodes)
	}
}

// tableFlags shape a table.
func (o *options) tableFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "print no names of columns")
}

// fileFlags select files instead of a cluster.
func (o *options) fileFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.files, "from-file", nil, "read this `path` instead of a cluster: the folder of a must-gather or of oc adm inspect, or a tar or tar.gz of it; a file of operator resources in YAML or JSON; or the output of a reporter's --output; - is standard input; may be repeated")
	f.StringVar(&o.at, "at", "", "with --from-file: evaluate as of this `time`, as in 2026-05-08T12:34:56Z; not set: that of the newest report")
	_ = cmd.RegisterFlagCompletionFunc("at", cobra.NoFileCompletions)
}

func (o *options) outputFlag(cmd *cobra.Command, formats ...string) {
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "the `form`: one of "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if o.output != "" && !slices.Contains(formats, o.output) {
			return fmt.Errorf("--output: %q is none of %s", o.output, strings.Join(formats, ", "))
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
}

// shipped are the names of targets, as in metrics and events, in the configuration of the
// shipped manifests.
var shipped = func() map[string]string {
	resources := map[string]string{}
	for _, r := range contract.Resources {
		resources[r.APIServer.Name] = r.Plural
	}
	return resources
}()

// validate checks the flags before anything is read.
func (o *options) validate(*cobra.Command, []string) error {
	for i, t := range o.targets {
		if resource, ok := shipped[t]; ok {
			o.names = append(o.names, t) // a KMSHealth has the target's name
			o.targets[i], t = resource, resource
		}
		if !slices.Contains(contract.ResourceNames(), t) && contract.ResourceNamed(t).Plural != contract.KMSHealths.Plural {
			return fmt.Errorf("--target: %q is none of %s", t, strings.Join(contract.ResourceNames(), ", "))
		}
	}
	if o.timeout <= 0 {
		return fmt.Errorf("--request-timeout: %s must be more than 0", o.timeout)
	}
	if o.user.Impersonate == "" && (len(o.user.ImpersonateGroups) > 0 || o.user.ImpersonateUID != "") {
		return errors.New("--as-group and --as-uid: valid only with --as")
	}
	if o.at == "" {
		return nil
	}
	if len(o.files) == 0 {
		return errors.New("--at: valid only with --from-file; a cluster is evaluated at the current time")
	}
	if _, err := time.Parse(time.RFC3339, o.at); err != nil {
		return fmt.Errorf("--at: %q is not an RFC 3339 time, as in 2026-05-08T12:34:56Z", o.at)
	}
	return nil
}

// wanted are the operator resources to read.
func (o *options) wanted() []string {
	return slices.DeleteFunc(contract.ResourceNames(), func(t string) bool { return !o.wants(t) })
}

// wants reports whether an operator resource or a KMSHealth is selected; of kmshealths, whether
// one of them may be.
func (o *options) wants(target string) bool {
	if target == contract.KMSHealths.Plural {
		return o.wantsOwn()
	}
	r := contract.ResourceNamed(target)
	return len(o.targets) == 0 || slices.Contains(o.targets, target) || slices.Contains(o.targets, r.Plural) || slices.Contains(o.names, r.Name)
}

// wantsOwn reports whether a KMSHealth may be selected.
func (o *options) wantsOwn() bool {
	return len(o.targets) == 0 || len(o.names) > 0 || slices.ContainsFunc(o.targets, func(t string) bool { return contract.ResourceNamed(t).PerAPIServer() })
}

// readTargets reads the targets: operator resources, and KMSHealths.
func (o *options) readTargets(ctx context.Context, c *source.Cluster) (found []view.Target, problems []error) {
	found, problems = c.Read(ctx, o.wanted())
	if !o.wantsOwn() || unreachable(problems) != nil {
		return found, problems
	}
	own, problem := c.KMSHealths(ctx, len(found) > 0)
	if problem != nil && !slices.ContainsFunc(problems, problem.SameAs) {
		problems = append(problems, problem)
	}
	own = slices.DeleteFunc(own, func(t view.Target) bool { return !o.wants(t.Name) })
	if o.ownOnly = len(found) == 0 && len(own) > 0; o.ownOnly {
		problems = nil // on plain Kubernetes, who may read KMSHealths has no right to resources that do not exist
	}
	return append(found, own...), problems
}

func (o *options) leaseNamespaces() []string {
	if o.operatorNamespace == "" {
		return operatorNamespaces
	}
	return []string{o.operatorNamespace}
}
