//go:build integration && race

package operator

const raceDetector = true
