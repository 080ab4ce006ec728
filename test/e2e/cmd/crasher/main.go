// crasher replaces a reporter whose image starts on every node, and which then
// crashes: it supports only --version.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("crasher")
		return
	}
	fmt.Fprintln(os.Stderr, "crasher: this is what it is for")
	os.Exit(1)
}
