//go:build integration && !race

package nodes

const raceDetector = false
