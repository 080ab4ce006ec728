package main

import "strings"

// fault is one row of the comparison: how its plugin is made unhealthy, and what is
// known of the outcome.
type fault struct {
	name string
	// start holds from before kube-apiserver's first call.
	start []string
	// steps make the plugin unhealthy, in order. They are commands and faults of
	// package kmsplugin, as one would type them; heal ends those of start too.
	steps []string
	// unhealthy is what kube-apiserver 1.36 makes of it. The comparison does not need
	// it; it keeps a fault that has lost its effect from agreeing by accident.
	unhealthy bool
	// differs is the number of the difference that this row must show, 0 for
	// none.
	differs int
	// turns marks a plugin whose answers differ from call to call. It counts as
	// unhealthy if one of maxTurns answers made it so.
	turns bool
}

// maxTurns is how often a plugin that answers by turns is asked.
const maxTurns = 3

// faults is the whole comparison. The first plugin is the one that
// kube-apiserver writes with, so it stays healthy.
var faults = []fault{
	{name: "healthy"},

	// The answer.
	{name: "healthz is another text", steps: []string{"unhealthy vault is sealed"}, unhealthy: true},
	{name: "healthz of 70 KiB", steps: []string{"huge-answer"}, unhealthy: true},
	{name: "60 KiB of padding", steps: []string{"padded-answer 61440"}},
	{name: "200 KiB of padding", steps: []string{"padded-answer 204800"}},
	{name: "300 KiB of padding", steps: []string{"padded-answer 307200"}, differs: tooLarge},
	{name: "5 MiB of padding", steps: []string{"padded-answer 5242880"}, unhealthy: true},
	{name: "version v3", steps: []string{"wrong-version v3"}, unhealthy: true},
	{name: "version v2beta1 from the start", start: []string{"v2beta1"}},
	{name: "version v2beta1 after v2", steps: []string{"v2beta1"}, unhealthy: true},
	{name: "version v2 after v2beta1", start: []string{"v2beta1"}, steps: []string{"heal"}, unhealthy: true},
	{name: "version by turns", steps: []string{"changing-version"}, unhealthy: true, turns: true},
	{name: "key_id empty", steps: []string{"empty-key-id"}, unhealthy: true},
	{name: "key_id of 1024 bytes", steps: []string{"key-id " + strings.Repeat("k", 1024)}},
	{name: "key_id of 1025 bytes", steps: []string{"long-key-id 1025"}, unhealthy: true},
	{name: "key_id of another name", steps: []string{"key-id some-other-key"}},
	{name: "key rotated", steps: []string{"rotate"}},
	{name: "key rotated, Status lags", steps: []string{"lagging-status", "rotate"}},
	{name: "gRPC health is NOT_SERVING", steps: []string{"not-serving"}}, // which neither side asks by default

	{name: "a header of 100 KiB", steps: []string{"huge-headers 102400"}, differs: tooLarge},
	{name: "a header of 20 KiB", steps: []string{"huge-headers"}},
	{name: "an error text of 20 KiB", steps: []string{"rpc-error Internal " + strings.Repeat("x", 20<<10)}, unhealthy: true},

	// No answer.
	{name: "Status fails: Internal", steps: []string{"rpc-error Internal the remote key is disabled"}, unhealthy: true},
	{name: "Status fails: Unavailable", steps: []string{"rpc-error Unavailable no remote"}, unhealthy: true},
	{name: "Status fails: PermissionDenied", steps: []string{"rpc-error PermissionDenied no right"}, unhealthy: true},
	{name: "Status fails: DeadlineExceeded", steps: []string{"rpc-error DeadlineExceeded remote too slow"}, unhealthy: true},
	{name: "Status fails: Unimplemented", steps: []string{"rpc-error Unimplemented not a v2 plugin"}, unhealthy: true},
	{name: "Status hangs", steps: []string{"hang"}, unhealthy: true},
	{name: "Status after 1s, timeout 3s", steps: []string{"slow 1s"}},
	{name: "each call after 2s, timeout 3s", steps: []string{"slow 2s all"}},
	{name: "Status after 5s, timeout 3s", steps: []string{"slow 5s"}, unhealthy: true},
	{name: "socket removed, connection open", steps: []string{"remove-socket"}},
	{name: "socket removed, connection lost", steps: []string{"crash", "remove-socket"}, unhealthy: true},
	{name: "crash", steps: []string{"crash"}, unhealthy: true},
	{name: "crash and return", steps: []string{"crash", "return"}},

	// Encrypt and Decrypt. A change of the key id makes kube-apiserver encrypt.
	{name: "encrypt refused", steps: []string{"refuse-encrypt"}, differs: notTried},
	{name: "encrypt refused, key id changed", steps: []string{"refuse-encrypt", "rotate"}, unhealthy: true, differs: notTried},
	{name: "encrypt hangs, key id changed", steps: []string{"hang encrypt", "rotate"}, unhealthy: true, differs: notTried},
	{name: "encrypt names another key", steps: []string{"encrypt-key-id"}, differs: notTried},
	{name: "encrypt names another key, key id changed", steps: []string{"encrypt-key-id", "rotate"}, unhealthy: true, differs: notTried},
	{name: "Status alone has a new key_id", steps: []string{"long-key-id 1024"}, unhealthy: true, differs: notTried},
	{name: "decrypt refused", steps: []string{"refuse-decrypt"}, differs: notTried},
	{name: "decrypt refused, key id changed", steps: []string{"refuse-decrypt", "rotate"}, differs: notTried},
	{name: "decrypt answers other bytes", steps: []string{"wrong-decrypt"}, differs: notTried},
	{name: "decrypt answers a byte less", steps: []string{"short-decrypt"}, differs: notTried},
	{name: "key replaced under its name", steps: []string{"replaced-key"}, differs: notTried},
	{name: "decrypt other bytes, key id changed", steps: []string{"wrong-decrypt", "rotate"}, differs: notTried},
}
