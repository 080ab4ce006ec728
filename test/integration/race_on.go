//go:build integration && race

package integration

const raceDetector = true
