// Package operator brings a reporter to every KMS plugin of a cluster's API
// servers, and takes them back.
//
// It works in passes. A pass looks at what the watches have told, decides for
// each target what there should be (package target), and writes what differs.
// Nothing but a few facts in an annotation is remembered, so an operator that is
// killed at any moment goes on from what there is.
package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/operator/apply"
	"github.com/kms-health/kms-health/pkg/operator/credentials"
	"github.com/kms-health/kms-health/pkg/operator/render"
	"github.com/kms-health/kms-health/pkg/operator/target"
	"github.com/kms-health/kms-health/pkg/operator/tlsprofile"
)

const (
	// settle is how long a pass waits for more of the same change.
	settle = 20 * time.Millisecond
	// resync is how often a pass is made without any change, for what no watch
	// tells.
	resync = time.Minute
	// A pass that fails is made again after these.
	firstRetry, lastRetry = 500 * time.Millisecond, 10 * time.Second
)

// Options of an Operator.
type Options struct {
	Client      dynamic.Interface
	Credentials *credentials.Manager
	// Approve says that the operator may approve its own certificate requests.
	Approve bool
	// CA returns the certificates, PEM, that API servers are known by.
	CA func() ([]byte, error)
	// ConfigFile is the path of an OperatorConfiguration.
	ConfigFile string
	// Namespace is the operator's own, where its reporters run too.
	Namespace string
	// Image is the reporter's where the file names none.
	Image string
	// OpenShift says whether this is OpenShift. Nil: look.
	OpenShift *bool
	// KubeletRoot is the kubelets' folder on the nodes.
	KubeletRoot string
	// Event tells of a change, of the target that it names.
	Event    func(target, reason, message string)
	Registry prometheus.Registerer
	Clock    clock.Clock
}

// Operator keeps the reporters of all targets.
type Operator struct {
	Options
	metrics  *metrics
	executor *target.Executor
	wake     chan struct{}
	// switching says that a target waits for reports, so they are worth a pass.
	switching atomic.Bool

	goroutines sync.WaitGroup
	config     atomic.Pointer[v1alpha1.OperatorConfiguration]
	problems   sync.Map // what: message, of configuration and profile
	serving    atomic.Pointer[tlsprofile.Settings]

	// What follows is of Run's goroutine alone.
	sources   sources
	tls       *tlsprofile.Settings
	leftOut   []string
	roleSeen  map[string]time.Time
	liveSeen  map[string]bool   // roles by which a live Secret is being followed
	ignored   map[string]string // what was told of providers that are not probed, by target
	revisions map[string]revisionRead
	retries   map[string]retry
	known     map[string]v1alpha1.Target // those of the configuration, and of earlier ones
	again     time.Duration              // how soon to look again
}

type retry struct {
	wait  time.Duration
	until time.Time
	text  string
}

// New makes an Operator.
func New(o Options) *Operator {
	op := &Operator{
		Options: o, wake: make(chan struct{}, 1),
		roleSeen: map[string]time.Time{}, liveSeen: map[string]bool{}, ignored: map[string]string{}, revisions: map[string]revisionRead{}, retries: map[string]retry{},
		known: map[string]v1alpha1.Target{},
	}
	op.metrics = newMetrics(o.Registry)
	op.sources = sources{running: map[string]*running{}}
	tell := func(target, reason, message string) {
		op.metrics.changes.WithLabelValues(target, reason).Inc()
		klog.InfoS("Changed", "target", target, "reason", reason, "what", message)
		o.Event(target, reason, message)
	}
	op.executor = &target.Executor{
		Client: o.Client, Applier: apply.New(o.Client, render.Manager, o.Clock),
		Credentials: o.Credentials, Approve: o.Approve, Clock: o.Clock, Event: tell,
	}
	return op
}

// Wake asks for a pass.
func (o *Operator) Wake() {
	select {
	case o.wake <- struct{}{}:
	default: // one is due anyway
	}
}

// wakeOnceAndForReports asks for a pass when a resource is first known, and then
// only while its reports are waited for: they come all the time.
func (o *Operator) wakeOnceAndForReports() func() {
	var once sync.Once
	return func() {
		once.Do(o.Wake)
		if o.switching.Load() {
			o.Wake()
		}
	}
}

// lookAgain asks for a pass after a while.
func (o *Operator) lookAgain(after time.Duration) {
	if o.again == 0 || after < o.again {
		o.again = after
	}
}

// Configured says why no configuration is in force, nil when one is.
func (o *Operator) Configured() error {
	var texts []string
	o.problems.Range(func(what, message any) bool {
		texts = append(texts, fmt.Sprintf("%v: %v", what, message))
		return true
	})
	slices.Sort(texts)
	if o.config.Load() == nil {
		return errors.New(strings.Join(append(texts, "no configuration is in force"), "; "))
	}
	return nil
}

// TLS is how the operator itself serves: by the cluster's TLS profile, once that
// is known.
func (o *Operator) TLS() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s := o.serving.Load(); s != nil {
		c.MinVersion = s.MinVersion.Version()
		for _, name := range s.CipherSuites {
			if id, err := v1alpha1.CipherSuite(name); err == nil {
				c.CipherSuites = append(c.CipherSuites, id)
			}
		}
	}
	return c
}

// problem keeps, and logs once, what keeps a part of the configuration from being
// taken. An empty message takes it back.
func (o *Operator) problem(what, message string) {
	was, had := o.problems.Load(what)
	switch {
	case message == "":
		o.problems.Delete(what)
		if had {
			klog.InfoS("Mended", "what", what)
		}
	case was != message:
		o.problems.Store(what, message)
		klog.ErrorS(nil, "Not taken; what was in force stays", "what", what, "reason", message)
	}
}

// Follow keeps the configuration as the file has it, until ctx ends. It needs no
// API server, and runs on every replica.
func (o *Operator) Follow(ctx context.Context) {
	filewatch.New(o.ConfigFile, filewatch.Options{}).Run(ctx, o.configure)
}

func (o *Operator) configure(content filewatch.Content) {
	if content.Err != nil {
		o.problem("configuration", content.Err.Error())
		o.metrics.configuration.Set(0)
		return
	}
	c, err := v1alpha1.DecodeOperator(content.Data)
	if err == nil && c.Image == "" {
		c.Image = o.Image
		if c.Image == "" {
			err = errors.New("image: Required value: the reporter's image, here or as REPORTER_IMAGE in the operator's environment")
		}
	}
	if err != nil {
		o.problem("configuration", fmt.Sprintf("%s: %v", o.ConfigFile, err))
		o.metrics.configuration.Set(0)
		return
	}
	o.problem("configuration", "")
	o.metrics.configuration.Set(1)
	o.config.Store(c)
	klog.InfoS("Configured", "file", o.ConfigFile, "managementState", c.ManagementState, "targets", len(c.Targets))
	o.Wake()
}

// Run makes passes until ctx ends. One replica at a time may run.
func (o *Operator) Run(ctx context.Context) {
	watches, end := context.WithCancel(ctx)
	defer o.goroutines.Wait()
	defer end()
	for {
		wait := resync
		if config := o.config.Load(); config != nil {
			wait = o.pass(ctx, watches, config)
		}
		timer := o.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-o.wake:
			timer.Stop()
		case <-timer.C():
		}
		select {
		case <-ctx.Done():
			return
		case <-o.Clock.After(settle):
		}
	}
}

// pass looks at everything once. It returns how soon to look again.
func (o *Operator) pass(ctx, watches context.Context, config *v1alpha1.OperatorConfiguration) time.Duration {
	o.again = 0
	o.sources.begin()
	defer o.sources.end()
	defer o.metrics.passes.Inc()
	o.lookAgain(resync)
	c, err := o.observeCluster(watches)
	if err != nil {
		o.failed("", err)
	}
	if err != nil || !c.known {
		return o.again
	}
	if config.ManagementState == v1alpha1.Unmanaged {
		return o.again
	}
	var all []*job
	for _, t := range o.targets(c, config) {
		all = append(all, o.plan(watches, c, config, t))
	}
	// The policy comes before the rights that it bounds, and goes after them.
	wanted, left, switching := false, false, false
	for _, j := range all {
		wanted = wanted || j.plan != nil && j.plan.Anchor != nil
		gone := j.plan != nil && j.plan.Gone && len(j.plan.Delete) == 0
		if left = left || !gone; gone && j.world.Going {
			delete(o.known, j.name)
		}
		switching = switching || j.plan != nil && j.plan.Status.Reason == target.ReasonProgressing
	}
	o.switching.Store(switching)
	switch {
	case wanted:
		err = o.keepPolicy(ctx, c)
	case !left:
		err = o.dropPolicy(ctx, c)
	}
	if err != nil {
		o.failed("", err)
		return o.again
	}
	for _, j := range all {
		if j.plan != nil {
			o.do(ctx, j)
		}
	}
	return o.again
}

// aTarget is a target of the configuration, or one that has left it.
type aTarget struct {
	v1alpha1.Target
	state target.State
	going bool
}

// targets are those of the configuration, those that were in an earlier one, and
// those whose ClusterRole shows that something of them is left.
func (o *Operator) targets(c *cluster, config *v1alpha1.OperatorConfiguration) []aTarget {
	states := map[string]target.State{}
	for _, role := range c.roles.All() {
		state, err := target.ParseState(role.GetAnnotations()[render.StateAnnotation])
		if err != nil {
			klog.ErrorS(err, "The state of a target is lost, and found anew", "clusterRole", role.GetName())
		}
		states[role.GetLabels()[render.TargetLabel]] = state
	}
	var all []aTarget
	for _, t := range config.Targets {
		all = append(all, aTarget{Target: t, state: states[t.Name], going: config.ManagementState == v1alpha1.Removed})
		delete(states, t.Name)
		o.known[t.Name] = t
	}
	for name, t := range o.known {
		state, has := states[name]
		switch {
		case has && state.Namespace != "" || slices.ContainsFunc(config.Targets, func(c v1alpha1.Target) bool { return c.Name == name }):
			continue
		default:
			delete(states, name)
			all = append(all, aTarget{Target: t, going: true})
		}
	}
	for name, state := range states {
		if state.Namespace == "" {
			continue // somebody else's, or not yet remembered
		}
		all = append(all, aTarget{going: true, state: state, Target: v1alpha1.Target{
			Name: name, Namespace: state.Namespace, Resource: state.Resource, PodSelector: state.PodSelector,
			Container: state.Container, Delivery: state.Delivery, Credentials: state.Credentials,
		}})
	}
	slices.SortFunc(all, func(a, b aTarget) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// job is a target, what there is of it, and what is to be done: nil where that is
// not known yet, or was tried a moment ago and failed.
type job struct {
	name  string
	world *target.World
	plan  *target.Plan
}

func (o *Operator) plan(watches context.Context, c *cluster, config *v1alpha1.OperatorConfiguration, t aTarget) *job {
	j := &job{name: t.Name}
	w, ok := o.observe(watches, c, &t.Target, config, t.state, t.going)
	if !ok {
		return j
	}
	if r, waiting := o.retries[t.Name]; waiting && o.Clock.Now().Before(r.until) {
		o.lookAgain(r.until.Sub(o.Clock.Now()))
		return j
	}
	plan, err := target.Make(w)
	if err != nil {
		o.failed(t.Name, err)
		return j
	}
	w.Mute = t.going && slices.ContainsFunc(config.Targets, func(c v1alpha1.Target) bool { return c.Resource == t.Resource && c.Name != t.Name })
	j.world, j.plan = w, plan
	return j
}

// do makes one target what it should be.
func (o *Operator) do(ctx context.Context, j *job) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	again, err := o.executor.Do(ctx, j.world, j.plan)
	if again > 0 {
		o.lookAgain(again)
	}
	if err == nil && !j.plan.Gone {
		err = o.executor.Tell(ctx, j.world, &j.plan.Status)
	}
	if err != nil {
		if apierrors.IsForbidden(err) {
			_ = o.executor.Tell(ctx, j.world, &target.Status{Status: "False", Reason: "Forbidden", Message: err.Error() +
				"; were the manifests applied, with the components that the delivery needs? See docs/install.md"})
		}
		o.failed(j.name, err)
		return
	}
	if _, failed := o.retries[j.name]; failed {
		klog.InfoS("Works again", "target", j.name)
		delete(o.retries, j.name)
	}
	o.metrics.observe(j.name, string(j.plan.State.Delivery), j.plan.Status)
}

// failed asks for another pass, later each time, and logs what is new.
func (o *Operator) failed(name string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	o.metrics.errors.WithLabelValues(name).Inc()
	r := o.retries[name]
	r.wait = min(lastRetry, max(firstRetry, 2*r.wait))
	r.until = o.Clock.Now().Add(r.wait)
	if r.text != err.Error() {
		r.text = err.Error()
		klog.ErrorS(err, "Could not be done, and is tried again", "target", name)
	}
	o.retries[name] = r
	o.lookAgain(r.wait)
}

// keepPolicy keeps the policy that bounds the reporters, before any of them is
// given a right.
func (o *Operator) keepPolicy(ctx context.Context, c *cluster) error {
	objects, err := render.Policy()
	if err != nil {
		return err
	}
	for _, p := range objects {
		live, _ := c.policies.Get("", p.GetName())
		if p.GetKind() != "ValidatingAdmissionPolicy" {
			live, _ = c.policyBinding.Get("", p.GetName())
		}
		outcome, _, err := o.executor.Applier.Apply(ctx, p, live)
		if err != nil {
			return err
		}
		switch outcome {
		case apply.Lagging:
			o.lookAgain(time.Second)
		case apply.Applied:
			o.executor.Event("all", "Applied", apply.Key(p))
		}
	}
	return nil
}

func (o *Operator) dropPolicy(ctx context.Context, c *cluster) error {
	var all []*unstructured.Unstructured
	for _, live := range slices.Concat(c.policyBinding.All(), c.policies.All()) {
		if live.GetLabels()["app.kubernetes.io/name"] == "kms-health-reporter" {
			all = append(all, live)
		}
	}
	for _, live := range all {
		deleted, err := o.executor.Applier.Delete(ctx, live)
		if err != nil {
			return err
		}
		if deleted {
			o.executor.Event("all", "Deleted", apply.Key(live))
		}
	}
	return nil
}
