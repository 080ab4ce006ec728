//go:build race

package program

const raceFlag = "-race"
