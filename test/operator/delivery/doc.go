// Package delivery tests how kms-health-operator deploys reporters for API servers, during
// rollouts, migrations, moves and removal.
package delivery
