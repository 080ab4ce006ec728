package view

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/rollup"
)

// Explanation is what explain prints with -o json and -o yaml.
type Explanation struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"` // Explanation
	Time       metav1.Time       `json:"time"`
	Node       string            `json:"node"`
	Plugins    []ExplainedPlugin `json:"plugins"`
	// Conditions are the operator's on the resources that have a report of the node.
	Conditions []TargetCondition `json:"conditions"`
}

// ExplainedPlugin is a plugin, what its state means, and what to do.
type ExplainedPlugin struct {
	Target string `json:"target"`
	Plugin
	Meaning string `json:"meaning"`
	Next    []Step `json:"next"`
}

// TargetCondition is a condition on the resource Target.
type TargetCondition struct {
	Target string `json:"target"`
	Condition
}

// Explain returns all known data on a node.
func Explain(s *Status, node string) Explanation {
	e := Explanation{APIVersion: APIVersion, Kind: "Explanation", Time: s.Time, Node: node, Plugins: []ExplainedPlugin{}, Conditions: []TargetCondition{}}
	for i := range s.Targets {
		t := &s.Targets[i]
		reported := len(e.Plugins)
		for _, p := range t.Plugins {
			if p.Node != node {
				continue
			}
			e.Plugins = append(e.Plugins, ExplainedPlugin{Target: t.Target, Plugin: p, Meaning: meaning(&p), Next: Next(&p)})
		}
		if len(e.Plugins) == reported {
			continue
		}
		for _, c := range t.Conditions {
			e.Conditions = append(e.Conditions, TargetCondition{t.Target, c})
		}
	}
	return e
}

// meaning explains a state, without terms of the contract.
func meaning(p *Plugin) string {
	impact := "Until it recovers, this node's API server may be unable to read what is encrypted with this key."
	if p.Write {
		impact = "Until it recovers, this node's API server may be unable to write encrypted resources or to read them."
	}
	switch p.State {
	case rollup.Healthy:
		return "The plugin answers, and is healthy."
	case rollup.Unhealthy:
		return "The plugin answers that it is not healthy, or its answer is not valid in KMS v2. " + impact
	case rollup.Error:
		return "The plugin does not answer: it does not run, hangs, or the call failed. " + impact
	case rollup.Stale:
		return "The report is too old for its interval, so the plugin's state is not known. The reporter has ended, cannot write to the API server, or is no longer configured for this key; or the node is down."
	case rollup.Skewed:
		return "The node's clock differs from the API server's, so the age of the report is not known. The plugin may be healthy."
	case rollup.Unreadable:
		return "There is a report, but it cannot be read, so the plugin's state is not known."
	case rollup.Missing:
		return "This node has not reported on a plugin yet. That is not a fault of the plugin: its reporter has not started, cannot write to the API server, or has no plugin to probe; or the API server on the node does not use KMS yet."
	}
	return "The report was written by a later version, with a state that this version does not support."
}

// Step is one action.
type Step struct {
	Text    string `json:"text"`
	Command string `json:"command,omitempty"`
}

// Next are the recommended actions for a plugin.
func Next(p *Plugin) []Step {
	node := p.Node
	if len(validation.IsDNS1123Subdomain(node)) > 0 { // keep it out of commands that are copied
		node = "NODE"
	}
	steps := []Step{}
	if p.State == rollup.Healthy {
		return steps
	}
	pods := "kubectl get pods -A --field-selector spec.nodeName=" + node
	plugin := Step{"See the plugin's log: the message of " + contract.PluginsDegraded + " has the command, where the operator knows the pod. Otherwise find it among the node's pods:", pods}
	reporter := Step{"See the reporter's log. If there is no such pod, the reporter is the container kms-health of the API server's pod:", pods + " -l app.kubernetes.io/name=kms-health-reporter"}
	switch p.State {
	case rollup.Unhealthy:
		steps = append(steps, plugin, Step{Text: "Then check what the plugin depends on: the remote KMS, its credentials, the network."})
	case rollup.Error:
		steps = append(steps, plugin, Step{Text: "If there is no such container, or it restarts, describe its pod."})
	case rollup.Stale:
		steps = append(steps, Step{"Check that the node exists and is Ready:", "kubectl get node " + node}, reporter)
	case rollup.Skewed:
		steps = append(steps, Step{"Check the node's clock, on the node:", "chronyc tracking"})
	case rollup.Unreadable:
		if p.Ours != nil && !*p.Ours {
			return append(steps, Step{Text: "Ask the vendor of the reporter that wrote it, " + p.Reporter + ": it is a third-party reporter."})
		}
		steps = append(steps, Step{"Check whether it was written by a later version than this one:", "kubectl kms-health version"}, reporter)
	case rollup.Missing:
		steps = append(steps, Step{"See why the node does not report, in the condition " + contract.HealthReporting + ":", "kubectl kms-health status"}, reporter)
	}
	return steps
}

// StateWords is the text of a state for people.
func StateWords(s rollup.State) string {
	switch s {
	case rollup.Skewed:
		return "clock differs"
	case rollup.Missing:
		return "not yet observed"
	default:
		return string(s)
	}
}
