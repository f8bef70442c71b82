// Package recipes_test has one recipe a file: a function to copy, and an example that runs
// it. README.md says which is for what.
package recipes_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolhealth/toolhealth"
)

// TestMain runs the tests, or stands in for the commands that the recipe for commands
// calls: this program is on every machine that runs the tests.
func TestMain(m *testing.M) {
	if command := os.Getenv("RECIPE_COMMAND"); command != "" {
		os.Exit(standIn(command))
	}
	goleak.VerifyTestMain(m)
}

// childTime is how long the child of the program that hangs holds its output open, unless
// its input ends.
const childTime = 5 * time.Second

// standIn is grep, and a program that hangs, together with a child of its own.
func standIn(command string) (code int) {
	switch command {
	case "match":
		fmt.Println("main.go: func main()")
	case "no match":
		return 1
	case "bad pattern":
		fmt.Fprintln(os.Stderr, "unmatched (")
		return 2
	case "hang":
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "RECIPE_COMMAND=child")
		child.Stdout = os.Stdout // so the pipe stays open when this program is killed
		child.Stdin = os.Stdin
		_ = child.Run()
	case "child":
		time.AfterFunc(childTime, func() { os.Exit(0) })
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	return 0
}

// newGuard returns a guard that makes each call once, so that the examples are quick.
func newGuard(settings toolhealth.Settings) *toolhealth.Guard {
	settings.Policy.MaxAttempts = 1
	guard, err := toolhealth.New(settings)
	if err != nil {
		panic(err) // in a program: return it, it names every field that is wrong
	}
	return guard
}

// forModel returns what the model reads of the end of a call.
func forModel(answer string, err error) string {
	if err == nil {
		return answer
	}
	text, ok := toolhealth.ModelText(err)
	if !ok {
		return "(the run has to end)"
	}
	return text
}
