// Package delivery tests what kms-health-operator makes of its targets: their reporters,
// through rollouts, migrations, moves and removal.
package delivery
