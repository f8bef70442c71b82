// Command table plays all rows and writes RESULTS.md into the current directory.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/toolhealth/toolhealth/internal/proof/verdicts"
)

func main() {
	verdicts.Child()
	verdicts.Quiet()
	right := flag.Bool("right", false, "add the rows that are right to testdata/right.txt")
	wrong := flag.Bool("wrong", false, "print the rows that are wrong, by rule")
	flag.Parse()
	if err := run(*right, *wrong); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(right, wrong bool) error {
	results, err := verdicts.Play(verdicts.Rows())
	if err != nil {
		return err
	}
	if wrong {
		verdicts.WriteWrong(os.Stdout, results)
	}
	if right {
		list := strings.Join(verdicts.RightNow(results), "\n") + "\n"
		if err := os.WriteFile("testdata/right.txt", []byte(list), 0o644); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	verdicts.Write(&b, results)
	return os.WriteFile("RESULTS.md", b.Bytes(), 0o644)
}
