// crasher stands in for a reporter whose image starts everywhere, and which then
// crashes: it knows --version, and nothing else.
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
