// hold waits while a file exists, and then executes another program:
//
//	hold FILE -- PROGRAM [ARGUMENT...]
//
// Without arguments it waits until it is killed, as the pause container of a pod.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 1 {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
		<-end
		return
	}
	if len(os.Args) < 4 || os.Args[2] != "--" {
		fmt.Fprintln(os.Stderr, "usage: hold [FILE -- PROGRAM [ARGUMENT...]]")
		os.Exit(2)
	}
	reported := false
	for {
		if _, err := os.Stat(os.Args[1]); err != nil {
			break
		}
		if !reported {
			fmt.Fprintf(os.Stderr, "hold: waiting while %s exists\n", os.Args[1])
			reported = true
		}
		time.Sleep(20 * time.Millisecond)
	}
	err := syscall.Exec(os.Args[3], os.Args[3:], os.Environ())
	fmt.Fprintf(os.Stderr, "hold: %s: %v\n", os.Args[3], err)
	os.Exit(1)
}
