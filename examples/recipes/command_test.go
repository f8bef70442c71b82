package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/toolhealth/toolhealth"
)

// grep runs a command, made by exec.CommandContext with the ctx of the attempt, that ends
// with 1 if it has found nothing, which is an answer.
func grep(cmd *exec.Cmd) (string, error) {
	cmd.WaitDelay = time.Second // a child of the command may outlive it and keep its output open
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if exit.ExitCode() == 1 {
			return "no match", nil
		}
		err = fmt.Errorf("%w: %s", err, &stderr) // what the model can mend its pattern by
	}
	return string(out), err
}

// Exit codes up to 125 are rejected requests, which the model reads about and which
// open no breaker. A command that hangs is killed by the attempt's ctx, and fails.
func Example_command() {
	stdin, end, err := os.Pipe() // the child of the command that hangs ends with this example
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stdin.Close()
	defer end.Close()
	search := func(ctx context.Context, pattern string) (string, error) {
		cmd := exec.CommandContext(ctx, os.Args[0]) // in a program: "grep", "-r", "-e", pattern, "--", "."
		cmd.Env = append(os.Environ(), "RECIPE_COMMAND="+pattern)
		cmd.Stdin = stdin
		return grep(cmd)
	}
	guard := newGuard(toolhealth.Settings{Tools: map[string]toolhealth.ToolSettings{
		"grep_in_time": {Policy: &toolhealth.Policy{Timeout: 300 * time.Millisecond, MaxAttempts: 1}},
	}})
	quick := toolhealth.Wrap(guard, "grep", search)
	for _, pattern := range []string{"match", "no match", "bad pattern"} {
		fmt.Println(strings.TrimSpace(forModel(quick.Call(context.Background(), pattern))))
	}
	health, _ := guard.Registry().Health("grep")
	fmt.Println(health.Successes, health.Rejected, health.Failures)

	start := time.Now()
	fmt.Println(forModel(toolhealth.Wrap(guard, "grep_in_time", search).Call(context.Background(), "hang")))
	fmt.Println("waited for the child:", time.Since(start) > childTime)
	// Output:
	// main.go: func main()
	// no match
	// exit status 2: unmatched (
	// 2 1 0
	// tool failed: no answer in time
	// waited for the child: false
}
