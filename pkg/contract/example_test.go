package contract_test

import (
	"fmt"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
)

// A rotation controller reads the conditions of the operator resource, and goes
// on only when all nodes agree on the write key.
func ExampleKeyAgreement() {
	conditions := map[string]string{
		"KMSHealthReporter_master-0": `[{"keyID":"2","kekID":"k-7","status":"healthy",` +
			`"lastChecked":"2026-05-08T12:34:56Z","intervalSeconds":30}]`,
		"KMSHealthReporter_master-1": `[{"keyID":"2","kekID":"k-6","status":"healthy",` +
			`"lastChecked":"2026-05-08T12:34:50Z","intervalSeconds":30}]`,
		"KMSPluginsDegraded": `not a reporter's`,
	}
	entries := map[string][]contract.Entry{}
	for conditionType, message := range conditions {
		node, ok := contract.NodeOf(conditionType)
		if !ok {
			continue
		}
		decoded, err := contract.DecodeMessage(message)
		if err != nil {
			fmt.Printf("%s: %v\n", conditionType, err)
			continue // a node that cannot be read is a node that is missing
		}
		entries[node] = decoded
	}

	now := time.Date(2026, 5, 8, 12, 35, 0, 0, time.UTC)
	agreement := contract.KeyAgreement(entries, []string{"master-0", "master-1", "master-2"}, "2", now)
	fmt.Println("agreed:", agreement.Agreed)
	for _, n := range agreement.Nodes {
		fmt.Println(n.Node, n.Answer, n.KEKID)
	}
	// Output:
	// agreed: false
	// master-0 differs k-7
	// master-1 differs k-6
	// master-2 missing
}
