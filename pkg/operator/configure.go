package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
)

// Configured says why no configuration is in force, nil when one is.
func (o *Operator) Configured() error {
	if o.config.Load() != nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(o.told()+"; no configuration is in force", "; "))
}

// told is what keeps a part of the configuration from being taken, empty where
// nothing does.
func (o *Operator) told() string {
	var texts []string
	o.problems.Range(func(what, message any) bool {
		texts = append(texts, fmt.Sprintf("%v: %v", what, message))
		return true
	})
	slices.Sort(texts)
	return strings.Join(texts, "; ")
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
	default:
		return
	}
	o.itself.Wake()
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
