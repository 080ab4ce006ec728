package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/doctor"
	"github.com/kms-health/kms-health/pkg/version"
)

// diagnose runs the doctor.
func diagnose(t *testing.T, stdin string, args ...string) (d doctor.Diagnosis, code int) {
	t.Helper()
	code, stdout, stderr := command{stdin: stdin}.run(t, append([]string{"doctor", "-o=json"}, args...)...)
	if err := json.Unmarshal([]byte(stdout), &d); err != nil || stderr != "" {
		t.Fatalf("%d, %v, %q\n%s", code, err, stderr, stdout)
	}
	return d, code
}

func (c *installation) live(t *testing.T) (d doctor.Diagnosis, code int) {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return diagnose(t, "", "--kubeconfig", kubeconfig(t, server.URL))
}

// gathered reads a must-gather; its warnings do not matter.
func (c *installation) gathered(t *testing.T) (d doctor.Diagnosis) {
	t.Helper()
	_, stdout, _ := command{}.run(t, "doctor", "-o=json", at, "--from-file", c.folder(t))
	if err := json.Unmarshal([]byte(stdout), &d); err != nil {
		t.Fatal(err, stdout)
	}
	return d
}

const at = "--at=2026-05-08T12:34:56Z"

// bad are the findings that are not OK, as words.
func bad(d doctor.Diagnosis) (all []string) {
	for _, f := range d.Findings {
		if f.Status != doctor.OK {
			all = append(all, fmt.Sprintf("%s %s %s %s", f.Status, f.Check, f.Reason, strings.Join(f.Nodes, ",")))
		}
	}
	return all
}

// The checks of a cluster, and of a must-gather of it, give the same findings.
func TestAClusterAndItsMustGatherHaveTheSameFindings(t *testing.T) {
	resource := func(t *testing.T, c *installation) *unstructured.Unstructured {
		t.Helper()
		return c.find(t, "KubeAPIServer", "")
	}
	for name, tt := range map[string]struct {
		resource string
		fault    func(t *testing.T, c *installation)
		want     []string
	}{
		"healthy": {"healthy.yaml", func(*testing.T, *installation) {}, nil},
		"unhealthy plugins": {"unhealthy.yaml", func(*testing.T, *installation) {}, []string{
			"ERROR Reports ReportedUnhealthy master-1", "ERROR Reports Timeout master-2", "UNKNOWN Keys PluginUnhealthy ",
		}},
		"a reporter that has stopped": {"stale.yaml", func(*testing.T, *installation) {}, []string{"WARNING Delivery ReporterStale ", "ERROR Reports Stale master-1", "UNKNOWN Keys ReporterStale "}},
		"an operator that does not run": {"healthy.yaml", func(t *testing.T, c *installation) {
			set(t, c.find(t, "Deployment", ""), int64(0), "status", "availableReplicas")
			set(t, c.find(t, "Lease", ""), "2026-05-08T12:00:00.000000Z", "spec", "renewTime")
			setCondition(t, c.find(t, "ClusterOperator", ""), "Degraded", "True", "Configuration_Invalid", "m")
		}, []string{"ERROR Installed NotAvailable ", "ERROR Installed LeaseExpired ", "ERROR Installed Configuration_Invalid "}},
		"an invalid configuration": {"healthy.yaml", func(t *testing.T, c *installation) {
			configure(t, c, "probe: {intervall: 10s}\nmanagementState: Removed\n")
		}, []string{"ERROR Configuration ConfigurationInvalid "}},
		"a pause": {"healthy.yaml", func(t *testing.T, c *installation) { configure(t, c, "managementState: Unmanaged\n") }, []string{"WARNING Delivery Unmanaged "}},
		"calls that failed before": {"healthy.yaml", func(_ *testing.T, c *installation) {
			c.metrics = kmsMetrics("Unavailable", 3) + answered("kms-2", time.Minute)
		}, nil},
		"calls that still fail": {"healthy.yaml", func(_ *testing.T, c *installation) {
			c.metrics = kmsMetrics("Unavailable", 3) + answered("kms-2", time.Hour)
		}, []string{"WARNING Metrics NoAnswer "}},
		"a delivery whose credentials expired": {"healthy.yaml", func(t *testing.T, c *installation) {
			setCondition(t, resource(t, c), "KMSHealthReporting", "False", "CredentialsExpired", "m")
		}, []string{"ERROR Delivery CredentialsExpired ", "ERROR Credentials CredentialsExpired "}},
		"another configuration": {"healthy.yaml", func(t *testing.T, c *installation) {
			set(t, c.find(t, "ConfigMap", "reporter"), strings.ReplaceAll(reporterFile, "30s", "1m"), "data", "config.yaml")
			set(t, c.find(t, "Pod", "kms-health-kube-apiserver-master-1"), setHash[1:], "metadata", "annotations", "kmshealth.openshift.io/config-hash")
		}, []string{"WARNING Configuration ConfigMapMissing master-1", "WARNING Configuration CopyDiffers master-0,master-2", "WARNING Configuration IntervalDiffers master-0,master-2"}},
		"the same sockets with other roles on two nodes": {"healthy.yaml", func(t *testing.T, c *installation) {
			other := c.find(t, "ConfigMap", "reporter").DeepCopy()
			other.SetName("kms-health-reporter-kube-apiserver-0123456789-" + setHash[:10])
			file := strings.NewReplacer("30s", "1m", "Write", "Read").Replace(reporterFile)
			set(t, other, file, "data", "config.yaml")
			c.objects = append(c.objects, other)
			copies := c.find(t, "Pod", "kms-health-kube-apiserver-master-1")
			set(t, copies, file, "metadata", "annotations", "kmshealth.openshift.io/config")
			mounts := c.find(t, "Pod", "kms-health-kube-apiserver-master-2")
			unstructured.RemoveNestedField(mounts.Object, "metadata", "annotations", "kmshealth.openshift.io/config")
			volumes, _, _ := unstructured.NestedSlice(mounts.Object, "spec", "volumes")
			volumes = append(volumes, map[string]any{"name": "mounted", "configMap": map[string]any{"name": other.GetName()}})
			set(t, mounts, volumes, "spec", "volumes")
		}, []string{"WARNING Configuration IntervalDiffers master-1,master-2"}},
		"a key that differs, and a third party's controller": {"disagree.yaml", func(*testing.T, *installation) {}, []string{
			"WARNING Delivery NoCondition ", "WARNING Keys HealthReportsNotConverged ", "WARNING Keys NotAgreed ",
		}},
		"a clock that is ahead": {"healthy.yaml", func(t *testing.T, c *installation) {
			setCondition(t, resource(t, c), "KMSHealthReporter_master-1", "True", "AsExpected", `[{"keyID":"2","kekID":"k-7","status":"healthy","lastChecked":"2026-05-08T13:34:44Z","intervalSeconds":30}]`)
			setCondition(t, resource(t, c), "KMSHealthReporter_master-2", "True", "AsExpected", `[{"keyID":"2","kekID":"k-7","status":"healthy","lastChecked":"2026-05-08T12:35:10Z","intervalSeconds":30}]`)
		}, []string{"ERROR Clocks ClockSkew master-1", "WARNING Clocks ReportFromFuture master-2"}},
		"five faults at once": {"unhealthy.yaml", func(t *testing.T, c *installation) {
			set(t, c.find(t, "Lease", ""), "2026-05-08T12:00:00.000000Z", "spec", "renewTime")
			setCondition(t, resource(t, c), "KMSHealthReporting", "False", "CredentialsExpired", "m")
			set(t, c.find(t, "Pod", "kms-health-kube-apiserver-master-0"), setHash[1:], "metadata", "annotations", "kmshealth.openshift.io/config-hash")
			c.metrics = kmsMetrics("Unavailable", 3)
		}, []string{
			"ERROR Installed LeaseExpired ", "ERROR Delivery CredentialsExpired ", "WARNING Configuration ConfigMapMissing master-0",
			"ERROR Reports ReportedUnhealthy master-1", "ERROR Reports Timeout master-2", "ERROR Credentials CredentialsExpired ",
			"UNKNOWN Keys PluginUnhealthy ", "WARNING Metrics CallsFailed ",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newInstallation(t, tt.resource)
			c.metrics = kmsMetrics("OK", 40)
			tt.fault(t, c)
			live, code := c.live(t)
			if diff := cmp.Diff(tt.want, bad(live)); diff != "" {
				t.Errorf("%s\n%+v", diff, live)
			}
			if want := map[bool]int{true: 0, false: 1}[len(tt.want) == 0]; code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
			gathered, ofFolder := diagnose(t, "", at, "--from-file", c.folder(t))
			packed, ofArchive := diagnose(t, c.archive(t), at, "--from-file=-")
			for _, other := range []doctor.Diagnosis{gathered, packed} {
				if diff := cmp.Diff(live, other); diff != "" {
					t.Error(diff)
				}
			}
			if ofFolder != code || ofArchive != code {
				t.Errorf("exit codes %d, %d, %d", code, ofFolder, ofArchive)
			}
		})
	}
}

// configure adds lines to the operator's configuration.
func configure(t *testing.T, c *installation, lines string) {
	t.Helper()
	o := c.find(t, "ConfigMap", "kms-health-operator-config")
	text, _, _ := unstructured.NestedString(o.Object, "data", "config.yaml")
	set(t, o, text+lines, "data", "config.yaml")
}

// finding returns the first finding of a check that is not OK, or whatever the first is.
func finding(d doctor.Diagnosis, check doctor.Check) (first doctor.Finding) {
	for _, f := range d.Findings {
		if f.Check == check && (first.Check == "" || first.Status == doctor.OK && f.Status != doctor.OK) {
			first = f
		}
	}
	return first
}

// A mistake is found at once, before the operator reports it, and with the version that judged:
// a newer operator may know more fields.
func TestAMistakeInTheConfigurationIsQuoted(t *testing.T) {
	for lines, want := range map[string]string{
		"probe: {intervall: 10s}\n": `probe.intervall: Forbidden: unknown field`,
		"probe: {interval: 1ms}\n":  `probe.interval: Invalid value: "1ms": must be`,
		"\tx":                       "invalid YAML, line 5: ",
	} {
		c := newInstallation(t, "healthy.yaml")
		configure(t, c, lines)
		d, _ := c.live(t)
		f := finding(d, doctor.Configuration)
		if f.Status != doctor.Error || !strings.Contains(f.Found, want) || !strings.HasSuffix(f.Found, "; an operator that has read a valid one keeps that") || !strings.Contains(f.Found, "version "+version.Version) {
			t.Errorf("%q: %+v", lines, f)
		}
	}
}

// The operator removes what it wrote, too.
func TestWhatIsRemovedByConfigurationIsNotMissing(t *testing.T) {
	c := newInstallation(t, "healthy.yaml")
	configure(t, c, "managementState: Removed\n")
	set(t, c.find(t, "KubeAPIServer", ""), []any{}, "status", "conditions")
	d, code := c.live(t)
	if f := finding(d, doctor.Delivery); code != 0 || f.Status != doctor.OK || f.Found != "managementState is Removed: nothing is delivered" || strings.Contains(fmt.Sprint(d), "KMS is off") {
		t.Errorf("%d, %+v", code, d)
	}
}

func TestTheClusterOperatorsMessageIsQuoted(t *testing.T) {
	c := newInstallation(t, "healthy.yaml")
	setCondition(t, c.find(t, "ClusterOperator", ""), "Degraded", "True", "Configuration_Invalid", "probe.intervall: unknown field\n"+strings.Repeat("x", 5000))
	d, _ := c.live(t)
	if f := finding(d, doctor.Installed); !strings.Contains(f.Found, "Degraded=True (Configuration_Invalid): probe.intervall: unknown field; xxx") || len(f.Found) > 1200 || !strings.HasSuffix(f.Found, "…") {
		t.Errorf("%+v", f)
	}
}

// Of an operator that does not run, the cause is shown, and what it would deliver is unknown.
func TestAnOperatorThatCannotStart(t *testing.T) {
	for name, tt := range map[string]struct {
		fault func(t *testing.T, c *installation, pod *unstructured.Unstructured)
		want  string
	}{
		"no image": {func(t *testing.T, _ *installation, pod *unstructured.Unstructured) {
			waiting(t, pod, map[string]any{"waiting": map[string]any{"reason": "ImagePullBackOff", "message": `Back-off pulling image "i"`}})
		}, `: container kms-health-operator: ImagePullBackOff: Back-off pulling image "i"`},
		"no Secret": {func(t *testing.T, _ *installation, pod *unstructured.Unstructured) {
			set(t, pod, []any{map[string]any{"name": "serving", "secret": map[string]any{"secretName": "kms-health-operator-serving"}}, map[string]any{"name": "config", "configMap": map[string]any{"name": "c"}}}, "spec", "volumes")
			waiting(t, pod, map[string]any{"waiting": map[string]any{"reason": "ContainerCreating"}})
		}, ": container kms-health-operator: ContainerCreating: its volumes need Secret kms-health-operator-serving, ConfigMap c"},
		"it ends": {func(t *testing.T, _ *installation, pod *unstructured.Unstructured) {
			waiting(t, pod, map[string]any{"waiting": map[string]any{"reason": "CrashLoopBackOff", "message": "back-off 10s"}}, map[string]any{"terminated": map[string]any{"exitCode": int64(3), "message": "no such flag"}})
		}, ": container kms-health-operator: CrashLoopBackOff, exit code 3: no such flag"},
		"no node": {func(t *testing.T, _ *installation, pod *unstructured.Unstructured) {
			setCondition(t, pod, "PodScheduled", "False", "Unschedulable", "0/3 nodes are available")
		}, ": PodScheduled=False (Unschedulable): 0/3 nodes are available"},
		"no pod": {func(t *testing.T, c *installation, pod *unstructured.Unstructured) {
			c.objects = slices.DeleteFunc(c.objects, func(o *unstructured.Unstructured) bool { return o == pod })
			setCondition(t, c.find(t, "Deployment", ""), "ReplicaFailure", "True", "FailedCreate", "forbidden by a policy")
		}, ": ReplicaFailure=True (FailedCreate): forbidden by a policy"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newInstallation(t, "healthy.yaml")
			c.metrics = kmsMetrics("OK", 40)
			set(t, c.find(t, "KubeAPIServer", ""), []any{}, "status", "conditions")
			set(t, c.find(t, "Deployment", ""), int64(0), "status", "availableReplicas")
			tt.fault(t, c, c.find(t, "Pod", "kms-health-operator"))
			live, _ := c.live(t)
			if f := finding(live, doctor.Installed); f.Reason != "NotAvailable" || !strings.HasSuffix(f.Found, "0 of 2 replicas are available"+tt.want) {
				t.Errorf("%+v", f)
			}
			if f := finding(live, doctor.Delivery); f.Status != doctor.Unknown || f.Reason != "OperatorNotAvailable" {
				t.Errorf("%+v", f)
			}
			if diff := cmp.Diff(live, c.gathered(t)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// waiting sets the state of a pod's container, and its last one.
func waiting(t *testing.T, pod *unstructured.Unstructured, states ...map[string]any) {
	t.Helper()
	status := map[string]any{"name": "kms-health-operator", "state": states[0]}
	if len(states) > 1 {
		status["lastState"] = states[1]
	}
	set(t, pod, []any{status}, "status", "containerStatuses")
}

// kmsMetrics are of an API server that has made calls of a plugin, with this result.
func kmsMetrics(result string, calls int) string {
	return fmt.Sprintf(`# TYPE go_goroutines gauge
go_goroutines 7
# HELP apiserver_envelope_encryption_kms_operations_latency_seconds [ALPHA] KMS operation duration with gRPC error code status total.
# TYPE apiserver_envelope_encryption_kms_operations_latency_seconds histogram
apiserver_envelope_encryption_kms_operations_latency_seconds_bucket{grpc_status_code=%[1]q,method_name="/v2.KeyManagementService/Status",provider_name="kms-2",le="+Inf"} %[2]d
apiserver_envelope_encryption_kms_operations_latency_seconds_sum{grpc_status_code=%[1]q,method_name="/v2.KeyManagementService/Status",provider_name="kms-2"} 1.5
apiserver_envelope_encryption_kms_operations_latency_seconds_count{grpc_status_code=%[1]q,method_name="/v2.KeyManagementService/Status",provider_name="kms-2"} %[2]d
`, result, calls)
}

// answered is kube-apiserver's metrics of the last answer of a plugin's Status, and of the last
// use of a key, which is when the metrics were scraped.
func answered(provider string, ago time.Duration) string { return answeredBy(provider, taken, ago) }

func answeredBy(provider string, scraped time.Time, ago time.Duration) string {
	const name = "apiserver_envelope_encryption_key_id_hash"
	return fmt.Sprintf("# TYPE %[1]s_status_last_timestamp_seconds gauge\n%[1]s_status_last_timestamp_seconds{apiserver_id_hash=\"sha256:a\",key_id_hash=\"sha256:b\",provider_name=%[2]q} %[3]d\n"+
		"# TYPE %[1]s_last_timestamp_seconds gauge\n%[1]s_last_timestamp_seconds{apiserver_id_hash=\"sha256:a\",key_id_hash=\"sha256:b\",provider_name=%[2]q,transformation_type=\"from_storage\"} %[4]d\n",
		name, provider, scraped.Add(-ago).Unix(), scraped.Unix())
}

// In an owner's pods the reporter has no label, and its credential is in a Secret.
func TestReportersInPodsOfAnOwner(t *testing.T) {
	c := newInstallation(t, "healthy.yaml")
	for _, o := range c.objects {
		if o.GetKind() == "Pod" && o.GetNamespace() == operatorNamespace {
			unstructured.RemoveNestedField(o.Object, "metadata", "labels")
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "kmshealth.openshift.io/config")
			o.SetNamespace("openshift-kube-apiserver")
		}
	}
	c.find(t, "ConfigMap", "reporter").SetNamespace("openshift-kube-apiserver")
	want := []string{"UNKNOWN Credentials InSecret ", "UNKNOWN Metrics Forbidden "}
	if d, _ := c.live(t); !cmp.Equal(bad(d), want) {
		t.Errorf("%q", bad(d))
	}
	want[1] = "UNKNOWN Metrics NotGathered "
	if d, _ := diagnose(t, c.archive(t), at, "--from-file=-"); !cmp.Equal(bad(d), want) {
		t.Errorf("%q", bad(d))
	}
	c.forbidden = []string{"openshift-kube-apiserver"}
	if d, _ := c.live(t); !slices.Contains(bad(d), "UNKNOWN Configuration Forbidden ") {
		t.Errorf("%q", bad(d))
	}
}

// The clock of a server is known to some seconds only.
func TestReportsOfAServerSomeSecondsAhead(t *testing.T) {
	c := newInstallation(t, "healthy.yaml")
	c.ahead = 4 * time.Second
	for _, node := range []string{"master-0", "master-1", "master-2"} {
		setCondition(t, c.find(t, "KubeAPIServer", ""), "KMSHealthReporter_"+node, "True", "AsExpected", `[{"keyID":"2","kekID":"k-7","status":"healthy","lastChecked":"2026-05-08T12:35:00Z","intervalSeconds":30}]`)
	}
	if d, _ := c.live(t); !cmp.Equal(bad(d), []string{"UNKNOWN Metrics Forbidden "}) {
		t.Errorf("%q", bad(d))
	}
}

// A must-gather cannot show that there is no operator.
func TestAClusterWithoutTheOperator(t *testing.T) {
	c := newInstallation(t, "disagree.yaml")
	c.objects = c.objects[:1]
	d, code := c.live(t)
	if want := []string{"WARNING Installed NotInstalled ", "WARNING Keys HealthReportsNotConverged ", "WARNING Keys NotAgreed ", "UNKNOWN Metrics Forbidden "}; code != 1 || !cmp.Equal(bad(d), want) {
		t.Errorf("%d, %q", code, bad(d))
	}
	c.objects = nil
	d, code = c.live(t)
	if want := []string{"ERROR Installed NotInstalled ", "UNKNOWN Reports NothingReported "}; code != 1 || !cmp.Equal(bad(d), want) {
		t.Errorf("%d, %q", code, bad(d))
	}
}

func TestWhatCannotBeReadIsUnknown(t *testing.T) {
	c := newInstallation(t, "healthy.yaml")
	c.forbidden = []string{"pods", "configmaps", "clusteroperators", "leases"}
	d, code := c.live(t)
	want := []string{
		"UNKNOWN Installed Forbidden ", "UNKNOWN Rights Forbidden ", "UNKNOWN Configuration Forbidden ", "UNKNOWN Credentials Forbidden ", "UNKNOWN Metrics Forbidden ",
	}
	if diff := cmp.Diff(want, bad(d)); diff != "" || code != 2 || d.Status != doctor.Unknown {
		t.Error(diff, code)
	}
	c.forbidden = []string{"openshift-kube-apiserver"} // the reporters have pods of their own
	if d, _ := c.live(t); !cmp.Equal(bad(d), []string{"UNKNOWN Metrics Forbidden "}) {
		t.Errorf("%q", bad(d))
	}
	c.forbidden = []string{"deployments", "kubeapiservers"}
	if d, code := c.live(t); code != 2 || !slices.Contains(bad(d), "UNKNOWN Installed Forbidden ") || !slices.Contains(bad(d), "UNKNOWN Reports NothingReported ") {
		t.Errorf("%d, %q", code, bad(d))
	}
	// A must-gather of the operator resources alone.
	d, code = diagnose(t, "", at, "--from-file=testdata/healthy.yaml")
	if want := []string{"UNKNOWN Installed NotGathered ", "UNKNOWN Rights NotGathered ", "UNKNOWN Configuration NotGathered ", "UNKNOWN Credentials NotGathered ", "UNKNOWN Metrics NotGathered "}; code != 2 || !cmp.Equal(bad(d), want) {
		t.Errorf("%d, %q", code, bad(d))
	}
}

func TestTheDoctorReadsMetricsIfThatIsAllowed(t *testing.T) {
	text := kmsMetrics("OK", 40)
	bad := kmsMetrics("Unavailable", 3)
	_, bad, _ = strings.Cut(bad, "apiserver_envelope_encryption_kms_operations_latency_seconds_bucket")
	bad = "apiserver_envelope_encryption_kms_operations_latency_seconds_bucket" + bad
	const invalid = "# TYPE apiserver_envelope_encryption_invalid_key_id_from_status_total counter\napiserver_envelope_encryption_invalid_key_id_from_status_total{error=\"empty\",provider_name=\"kms-2\"} 2\n"
	for metrics, want := range map[string]struct {
		status doctor.Status
		found  string
	}{
		text: {doctor.OK, "made 40 calls of KMS plugins since it started, and none failed"},
		text + bad + answered("kms-2", 10*time.Minute): {doctor.Warning, "Unavailable 3; kms-2 has not answered its Status for 10m, though the reporters call its plugins healthy"},
		text + bad + answered("kms-1", 0):              {doctor.Warning, "Unavailable 3; kms-2 has never answered its Status with a valid key_id, though the reporters call its plugins healthy"},
		text + bad + answered("kms-2", time.Minute):    {doctor.OK, "of 43 calls of KMS plugins by the API server that answered, since it started, 3 failed: kms-2 /v2.KeyManagementService/Status Unavailable 3; its plugins report healthy now"},
		text + invalid: {doctor.Warning, "an invalid key_id from Status 2 times since it started; kms-2 has never answered its Status with a valid key_id, though"},
		text + invalid + answered("kms-2", time.Minute): {doctor.OK, "an invalid key_id from Status 2 times since it started; its plugins report healthy now"},
		"# nothing\n": {doctor.OK, "made no call of a KMS v2 plugin"},
		"apiserver_envelope_encryption_x{ nonsense": {doctor.Unknown, "could not be parsed"},
		strings.Repeat("x", 1<<20):                  {doctor.Unknown, "could not be read"},
	} {
		c := newInstallation(t, "healthy.yaml")
		c.metrics = metrics
		live, _ := c.live(t)
		for _, d := range []doctor.Diagnosis{live, c.gathered(t)} {
			if f := d.Findings[len(d.Findings)-1]; f.Check != doctor.Metrics || f.Status != want.status || !strings.Contains(f.Found, want.found) {
				t.Errorf("%.300s\n%+v", metrics, f)
			}
		}
	}
	// Of several must-gathers the newest reports count, and the metrics may be those of another.
	c := newInstallation(t, "healthy.yaml")
	c.metrics = text + bad + answeredBy("kms-2", taken.Add(-48*time.Hour), time.Minute)
	if d := c.gathered(t); d.Findings[len(d.Findings)-1].Status != doctor.OK {
		t.Errorf("%+v", d.Findings)
	}
}

func TestTheDoctorIsAsDocumented(t *testing.T) {
	for _, tt := range []struct {
		golden, resource string
		code             int
	}{{"doctor.healthy.txt", "healthy.yaml", 2}, {"doctor.unhealthy.txt", "unhealthy.yaml", 1}} {
		c := newInstallation(t, tt.resource)
		if tt.golden == "doctor.unhealthy.txt" {
			setCondition(t, c.find(t, "KubeAPIServer", ""), "KMSHealthReporting", "False", "ReporterNotRunning", "pod openshift-kms-health/kms-health-kube-apiserver-75a43decc4 on node master-2: ImagePullBackOff")
		}
		code, stdout, stderr := command{}.run(t, "doctor", at, "--from-file", c.folder(t))
		if code != tt.code || stderr != "" {
			t.Errorf("%d, %q", code, stderr)
		}
		checkGolden(t, tt.golden, stdout)
	}
}

func TestTheDoctorExplainsWhatItCannotUse(t *testing.T) {
	const line = `[{"keyID":"2","kekID":"k-7","status":"healthy","lastChecked":"2026-05-08T12:34:50Z"}]`
	for name, tt := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"an output":         {line, []string{"--from-file=-"}, "the output of a reporter has nothing that the doctor checks"},
		"other objects":     {"kind: Secret", []string{"--from-file=-"}, "standard input: has no object of kms-health"},
		"an empty folder":   {"", []string{"--from-file", t.TempDir()}, "has no object of kms-health"},
		"no API server":     {"", []string{"--kubeconfig=testdata/kubeconfig"}, "error: the API server http://127.0.0.1:1 cannot be reached"},
		"a node":            {"", []string{"master-0"}, "doctor takes no argument"},
		"a form of a table": {"", []string{"-o=wide"}, `"wide" is none of json, yaml`},
	} {
		code, stdout, stderr := command{stdin: tt.stdin}.run(t, append([]string{"doctor"}, tt.args...)...)
		if code != exitFailed || stdout != "" || !strings.Contains(strings.ReplaceAll(stderr, "-: ", "standard input: "), tt.want) {
			t.Errorf("%s: %d, %q, %q", name, code, stdout, stderr)
		}
	}
}

// A list that cannot be read does not count as an empty one.
func TestClocksAreUnknownWithoutAFreshReport(t *testing.T) {
	c := newInstallation(t, "healthy.yaml")
	d, _ := diagnose(t, c.archive(t), "--at=2026-05-08T13:34:56Z", "--from-file=-")
	if !slices.Contains(bad(d), "UNKNOWN Clocks NoFreshReport ") || !slices.ContainsFunc(d.Findings, func(f doctor.Finding) bool {
		return strings.HasPrefix(f.Found, "the annotations of 3 pods match") && strings.HasSuffix(f.Found, "; no report is fresh")
	}) {
		t.Errorf("%q, %+v", bad(d), d)
	}
}

func TestABrokenFileOfAMustGatherIsUnknown(t *testing.T) {
	c := newInstallation(t, "healthy.yaml")
	dir := c.folder(t)
	const list = "quay-io-release-sha256-0123/namespaces/openshift-kms-health/core/configmaps.yaml"
	if err := os.WriteFile(filepath.Join(dir, list), []byte("kms-health: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := command{}.run(t, "doctor", at, "--from-file", dir)
	if code != 2 || !strings.Contains(stderr, "warning: ") || !strings.Contains(stderr, list+": skipped") || !strings.Contains(squeezed(stdout), "could not be read: configmaps in namespace openshift-kms-health") || strings.Count(stdout, "UNKNOWN  ") != 3 || strings.Contains(stdout, "WARNING") {
		t.Errorf("%d, %q\n%s", code, stderr, stdout)
	}
}

func TestTheDoctorOfManyNodesIsShort(t *testing.T) {
	c := newInstallation(t, "healthy.yaml")
	o := c.find(t, "KubeAPIServer", "")
	for i := range 300 {
		setCondition(t, o, fmt.Sprintf("KMSHealthReporter_node-%d", i), "True", "AsExpected", `[{"keyID":"2","status":"error","lastChecked":"2026-05-08T12:34:50Z","reason":"Timeout","detail":"`+strings.Repeat("x", 900)+`"}]`)
	}
	code, stdout, _ := command{}.run(t, "doctor", at, "--from-file", c.folder(t))
	if code != 1 || strings.Count(stdout, "Timeout") != 1 || !strings.Contains(stdout, "and 295 more") {
		t.Errorf("%d\n%s", code, stdout)
	}
}

func squeezed(text string) string { return strings.Join(strings.Fields(text), " ") }
