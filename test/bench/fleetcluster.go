package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/apiservers"
)

// This file makes what the clusters of a fleet tell: the events of a watch.

const (
	fleetSize     = 1000
	fleetNodes    = 3                // in each cluster
	fleetInterval = 30 * time.Second // of each node's reporter
	fleetOthers   = 100              // conditions that are not ours
)

var fleetKeys = []string{"2", "1"} // the one that writes first

func fleetNode(cluster, node int) string {
	return fmt.Sprintf("master-%d.cluster-%04d.example.com", node, cluster)
}

// fleetCluster is one cluster, as its API server knows it.
type fleetCluster struct {
	number  int
	version int
	reports [fleetNodes]time.Time // when each was last made
	ill     bool                  // the last node's plugin that reads does not answer
}

// event is what the cluster's API server tells of its operator resource: JSON.
func (c *fleetCluster) event(template string) ([]byte, error) {
	c.version++
	values := []string{"@VERSION@", strconv.Itoa(c.version)}
	for node, at := range c.reports {
		var entries []health.Entry
		for _, keyID := range fleetKeys {
			e := health.Entry{
				KeyID: keyID, KEKID: "0f9a3c1e-52f4-4a0e-9d1b-7c0d5a1e4f0" + keyID,
				Status: health.Healthy, LastChecked: at, Interval: fleetInterval,
			}
			if c.ill && node == fleetNodes-1 && keyID == fleetKeys[1] {
				e.Status, e.KEKID, e.Detail = health.Error, "", "Status: rpc error: code = Unavailable desc = the key management service cannot be reached"
			}
			entries = append(entries, e)
		}
		message, err := health.EncodeMessage(entries)
		if err != nil {
			return nil, err
		}
		quoted, err := json.Marshal(message)
		if err != nil {
			return nil, err
		}
		values = append(values,
			fleetToken("NODE", node), fleetNode(c.number, node),
			fleetToken("TIME", node), at.UTC().Format(time.RFC3339),
			fleetToken("MESSAGE", node), strings.Trim(string(quoted), `"`))
	}
	return []byte(strings.NewReplacer(values...).Replace(template)), nil
}

func fleetToken(name string, node int) string { return fmt.Sprintf("@%s-%d@", name, node) }

// fleetTemplate is an event with tokens where clusters differ: an operator resource
// with 100 conditions of OpenShift's operators, those of the roll-up, and a report
// of each node, and with their managed fields.
func fleetTemplate(began time.Time) (string, error) {
	at := began.UTC().Format(time.RFC3339)
	var conditions, managed []any
	add := func(manager, written string, list ...map[string]any) {
		owned := map[string]any{}
		for _, c := range list {
			owned[fmt.Sprintf(`k:{"type":%q}`, c["type"])] = map[string]any{
				".": struct{}{}, "f:type": struct{}{}, "f:status": struct{}{}, "f:reason": struct{}{}, "f:message": struct{}{}, "f:lastTransitionTime": struct{}{},
			}
			conditions = append(conditions, c)
		}
		managed = append(managed, map[string]any{
			"manager": manager, "operation": "Apply", "apiVersion": "operator.openshift.io/v1", "subresource": "status",
			"time": written, "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:status": map[string]any{"f:conditions": owned}},
		})
	}
	condition := func(conditionType, status, message string) map[string]any {
		return map[string]any{"type": conditionType, "status": status, "reason": "AsExpected", "message": message, "lastTransitionTime": at}
	}
	var others []map[string]any
	for i := range fleetOthers {
		others = append(others, condition(fmt.Sprintf("SomeController%dDegraded", i), "False", strings.Repeat("All is well. ", 10)))
	}
	add(owner, at, others...)
	add("kms-health-operator", at,
		condition(rollup.Degraded, rollup.False, "every plugin is healthy on 3 nodes"),
		condition(rollup.Observed, rollup.True, "3 nodes report"),
		condition(rollup.WriteKeyAgreed, rollup.True, rollup.AgreedMessage(fleetKeys[0], "0f9a3c1e-52f4-4a0e-9d1b-7c0d5a1e4f02")))
	for node := range fleetNodes {
		name := fleetToken("NODE", node)
		add(health.ConditionManager(name), fleetToken("TIME", node), condition(health.ConditionType(name), health.ConditionStatus, fleetToken("MESSAGE", node)))
	}
	raw, err := json.Marshal(map[string]any{
		"type": "MODIFIED",
		"object": map[string]any{
			"apiVersion": "operator.openshift.io/v1", "kind": apiservers.Kube.Kind,
			"metadata": map[string]any{
				"name": "cluster", "uid": "5b2f9d6e-0000-4000-8000-000000000000", "creationTimestamp": at, "generation": 1,
				"resourceVersion": "@VERSION@", "managedFields": managed,
			},
			"spec":   map[string]any{"managementState": "Managed", "logLevel": "Normal", "operatorLogLevel": "Normal"},
			"status": map[string]any{"conditions": conditions, "readyReplicas": fleetNodes},
		},
	})
	return string(raw), err
}

// fleet is all clusters, and when each node of each reports next: evenly, so that
// as many report in each moment.
type fleet struct {
	template string
	clusters []fleetCluster
	next     int // which node of which cluster reports next
}

// newFleet is a fleet in which every node has reported within an interval.
func newFleet(now time.Time) (*fleet, error) {
	template, err := fleetTemplate(now)
	if err != nil {
		return nil, err
	}
	f := &fleet{template: template, clusters: make([]fleetCluster, fleetSize)}
	for i := range f.clusters {
		c := &f.clusters[i]
		c.number = i
		for node := range c.reports {
			// In the order in which they will report again.
			part := float64(node*fleetSize+i) / (fleetNodes * fleetSize)
			c.reports[node] = now.Add(-fleetInterval + time.Duration(part*float64(fleetInterval)))
		}
	}
	return f, nil
}

// report has the next node report, and returns its cluster.
func (f *fleet) report(now time.Time) *fleetCluster {
	c := &f.clusters[f.next%fleetSize]
	c.reports[f.next/fleetSize] = now
	f.next = (f.next + 1) % (fleetNodes * fleetSize)
	return c
}

// sicken makes every so-many-th cluster ill.
func (f *fleet) sicken(every int) (ill int) {
	for i := every / 2; i < len(f.clusters); i += every {
		f.clusters[i].ill = true
		ill++
	}
	return ill
}
