package view

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kms-health/kms-health/pkg/rollup"
)

// Explanation is what explain prints with -o json and -o yaml.
type Explanation struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"` // Explanation
	Time       metav1.Time       `json:"time"`
	Node       string            `json:"node"`
	Plugins    []ExplainedPlugin `json:"plugins"`
	// Said are the lines of the operator's conditions that speak of the node.
	Said []Said `json:"said"`
}

// ExplainedPlugin is a plugin, what its state means, and what to do.
type ExplainedPlugin struct {
	Target string `json:"target"`
	Plugin
	Meaning string `json:"meaning"`
	Next    []Step `json:"next"`
}

// Said is a line of a condition.
type Said struct {
	Target string `json:"target"`
	Type   string `json:"type"`
	Status string `json:"status"`
	Reason string `json:"reason"`
	Line   string `json:"line"`
}

// Explain says all that is known of a node.
func Explain(s *Status, node string) Explanation {
	e := Explanation{APIVersion: APIVersion, Kind: "Explanation", Time: s.Time, Node: node, Plugins: []ExplainedPlugin{}, Said: []Said{}}
	for i := range s.Targets {
		t := &s.Targets[i]
		for _, p := range t.Plugins {
			if p.Node != node {
				continue
			}
			e.Plugins = append(e.Plugins, ExplainedPlugin{Target: t.Target, Plugin: p, Meaning: meaning(&p), Next: next(&p, t.looks(node, p.KeyID))})
		}
		for _, c := range t.Conditions {
			for _, line := range c.said(node) {
				e.Said = append(e.Said, Said{t.Target, c.Type, c.Status, c.Reason, line})
			}
		}
	}
	return e
}

// meaning of a state, to somebody who has not read the contract.
func meaning(p *Plugin) string {
	suffers := "While it is so, what is encrypted with this key may not be readable by this node's API server."
	if p.Write {
		suffers = "While it is so, this node's API server may be able neither to write what is encrypted nor to read it."
	}
	switch p.State {
	case rollup.Healthy:
		return "The plugin answers, and well."
	case rollup.Unhealthy:
		return "The plugin answers, and not well: it says so itself, or its answer is not what KMS v2 demands. " + suffers
	case rollup.Error:
		return "The plugin gives no answer to judge: it does not run, hangs, or the call failed. " + suffers
	case rollup.Stale:
		return "The report is older than four of its intervals, so nothing is known of the plugin, whatever it last said. The reporter has ended, cannot write to the API server, has nothing to ask since the plugin's socket is not there, or is no longer told to; or the node is down."
	case rollup.Skewed:
		return "The node's clock is not the API server's, so the age of the report cannot be told. The plugin may be well."
	case rollup.Unreadable:
		return "There is a report, and it cannot be understood; so nothing is known of the plugin."
	case rollup.Missing:
		return "No report on a plugin of this node was ever seen. That is not a fault of the plugin: its reporter was not started, cannot write to the API server, or has no plugin to ask."
	}
	return "A later version of the reports says more than this command knows."
}

// Step is something to do.
type Step struct {
	Text    string `json:"text"`
	Command string `json:"command,omitempty"`
}

// next is what to do. looks are the operator's own commands, which name the pods.
func next(p *Plugin, looks []string) []Step {
	node := p.Node
	if len(validation.IsDNS1123Subdomain(node)) > 0 { // into no command that somebody may copy
		node = "NODE"
	}
	steps := []Step{}
	if p.State == rollup.Healthy {
		return steps
	}
	for _, look := range looks {
		steps = append(steps, Step{"Look where the operator says:", look})
	}
	pods := "kubectl get pods -A --field-selector spec.nodeName=" + node
	plugin := Step{"See the plugin's log. It runs in, or beside, the API server's pod on the node:", pods}
	reporter := Step{"See the reporter's log. Where there is no such pod, it is the container kms-health of the API server's pod:", pods + " -l app.kubernetes.io/name=kms-health-reporter"}
	switch p.State {
	case rollup.Unhealthy:
		steps = append(steps, plugin, Step{Text: "Then see to what is behind it: the remote KMS, the credentials for it, the network to it."})
	case rollup.Error:
		steps = append(steps, plugin, Step{Text: "Is there no such container, or does it restart? Describe its pod."})
	case rollup.Stale:
		steps = append(steps, Step{"Is the node there, and Ready?", "kubectl get node " + node}, reporter)
	case rollup.Skewed:
		steps = append(steps, Step{"See to the node's clock, on the node:", "chronyc tracking"})
	case rollup.Unreadable:
		if p.Ours != nil && !*p.Ours {
			return append(steps, Step{Text: "Ask those who made its writer, " + p.Reporter + ": it is none of this project."})
		}
		steps = append(steps, Step{"Was it written by a later version than this?", "kubectl kms-health version"}, reporter)
	case rollup.Missing:
		steps = append(steps, Step{"See what the operator says of its delivery, in the condition " + Delivery + ":", "kubectl kms-health status"}, reporter)
	}
	return steps
}

// harmless says that a command only looks, and is only one: the plugin's own words
// are in the same message, and must not get to say what an admin is to run.
func harmless(command string) bool {
	words := strings.Fields(command)
	if len(words) < 2 || words[0] != "kubectl" && words[0] != "oc" {
		return false
	}
	if verb := words[1]; verb != "logs" && verb != "describe" && verb != "get" {
		return false
	}
	return !strings.ContainsFunc(command, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune(" =,:/.-_", r)
	})
}
