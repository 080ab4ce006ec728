package main

// look is a command to look around with. Its last lines are shown: all, for 0.
type look struct {
	args []string
	last int
}

var looks = []look{
	{args: []string{"get", "pods", "-n", home, "-o", "wide"}},
	{args: []string{"get", "pods", "-n", target, "-L", "revision"}},
	{args: []string{"get", "kubeapiserver", "cluster", "-o", `jsonpath={.status.conditions[?(@.type=="KMSHealthReporter_master-1")].message}`}},
	{args: []string{"get", "kubeapiserver", "cluster", "-o", `jsonpath={.status.conditions[?(@.type=="KMSHealthDelivery")].message}`}},
	{args: []string{"get", "events", "-n", home, "--sort-by=.lastTimestamp"}, last: 6},
}

// invite tells what one can do with a cluster that is kept.
func (s *stage) invite() {
	s.say("\nThe cluster stays, with KMS on, until Ctrl-C. To look around, in another terminal:")
	s.say("")
	s.say("export KUBECONFIG=%s PATH=%s:%s:$PATH", s.admin, s.tools, s.bin)
	s.say("kubectl kms-health status; kubectl kms-health watch; kubectl kms-health explain master-1")
	s.say("kubectl get clusteroperators")
	for _, l := range looks {
		s.say("%s", commandLine(l.args))
	}
	s.say("")
	s.say("Make a plugin ill, and see its condition; other faults: make bin/kms-plugin && bin/kms-plugin --help")
	s.say("")
	for _, order := range []string{`{"name": "unhealthy", "args": ["vault is sealed"]}`, `{"name": "heal"}`} {
		s.say("curl --unix-socket %s -d '%s' http://plugin/command", s.control("master-1", "2"), order)
	}
	s.say("")
	s.say("Change the operator's file, which is followed; what it and the reporters say:")
	s.say("")
	s.say("sed -i 's/interval: .*/interval: 5s/' %s", s.operatorFile())
	s.say("tail -f %s %s", s.logPath("operator"), s.dir+"/reporters/*")
}
