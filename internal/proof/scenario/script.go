package scenario

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/toolhealth/toolhealth"
)

// scriptedReply is one RESULT of a call's script.
type scriptedReply struct {
	word   string        // "ok", "http", "stuck" ...
	status int           // http: the status
	after  time.Duration // http: the wait of its Retry-After
	stated bool          // http: the reply has a Retry-After, which may be 0s
	takes  time.Duration
	acts   string // acts: the tool that it calls
}

// plainReplies are the results without a number in their name.
var plainReplies = []string{
	"ok", "error", "refused", "reset", "rejected", "timeout", "stuck", "panic", "cancel", "soft",
	"unauthorized", "quota", "conflict", "keepalive",
}

func (l *lineReader) call() error {
	if err := l.toolThen(nil); err != nil {
		return err
	}
	colon := slices.Index(l.args, ":")
	if colon < 0 {
		return errors.New("a colon and a script are missing")
	}
	options, script := l.args[:colon], l.args[colon+1:]
	if i := slices.Index(options, "no_fallback"); i >= 0 {
		l.step.noFallback = true
		options = slices.Concat(options[:i], options[i+1:])
	}
	l.args = options
	if err := l.keys(callKeys.read); err != nil {
		return err
	}
	if err := l.readScript(script); err != nil {
		return err
	}
	if !l.step.expects {
		return nil
	}
	var err error
	if l.step.answer, err = l.takeExpected("a result"); err != nil {
		return err
	}
	if l.step.answer != "ok" {
		if _, err := readText[toolhealth.StopReason](l.step.answer); err != nil {
			return err
		}
	}
	return l.expectKeys(resultKeys)
}

func (l *lineReader) readScript(words []string) error {
	if len(words) == 0 {
		return errors.New("the script is missing")
	}
	l.step.script = make(map[string][]scriptedReply)
	for _, word := range words {
		i := strings.LastIndexByte(word, '=')
		if i <= 0 {
			return fmt.Errorf("%q is not TOOL=RESULT,RESULT", word)
		}
		tool := word[:i]
		if l.step.script[tool] != nil {
			return fmt.Errorf("two scripts for %q", tool)
		}
		for part := range strings.SplitSeq(word[i+1:], ",") {
			reply, err := readReply(part)
			if err != nil {
				return err
			}
			l.step.script[tool] = append(l.step.script[tool], reply)
		}
	}
	return nil
}

func readReply(text string) (r scriptedReply, err error) {
	word, takes, timed := strings.Cut(text, "/")
	if timed {
		if r.takes, err = time.ParseDuration(takes); err != nil {
			return r, err
		}
		if r.takes < 0 {
			return r, fmt.Errorf("%q takes less than no time", text)
		}
	}
	if inner, ok := strings.CutPrefix(word, "acts("); ok && strings.HasSuffix(inner, ")") {
		r.word, r.acts = "acts", strings.TrimSuffix(inner, ")")
		return r, nil
	}
	status, isHTTP := strings.CutPrefix(word, "http")
	if !isHTTP {
		if r.word = word; !slices.Contains(plainReplies, word) {
			return r, fmt.Errorf("unknown result %q", text)
		}
		return r, nil
	}
	r.word = "http"
	status, after, stated := strings.Cut(status, "+")
	if r.stated = stated; stated {
		if r.after, err = time.ParseDuration(after); err != nil {
			return r, err
		}
	}
	r.status, err = strconv.Atoi(status)
	if err != nil || r.status < 100 || r.status > 599 {
		return r, fmt.Errorf("%q is no HTTP status", status)
	}
	return r, nil
}

// performance is one guarded call with its scripted tools.
type performance struct {
	guard  *toolhealth.Guard
	script map[string][]scriptedReply
	cancel context.CancelFunc // ends the caller's ctx

	mu  sync.Mutex // guards ran: a detached run may outlive the call
	ran []string
}

func (st *stage) call(step *Step) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if deadline, ok := valueOf[time.Duration](step.set, "deadline"); ok {
		ctx, cancel = context.WithTimeout(ctx, deadline)
		defer cancel()
	}
	if step.noFallback {
		ctx = toolhealth.WithoutFallback(ctx)
	}
	ctx, info := toolhealth.WithCallInfo(ctx)
	p := &performance{guard: st.guard, script: step.script, cancel: cancel}
	began := st.now()
	_, err := toolhealth.Call(ctx, st.guard, step.tool, p.run, toolhealth.CheckResult(checkReply))
	came := map[string]any{
		"elapsed": st.now() - began, "served": info.Served, "partial": info.Partial,
		"kind": "none", "retry_after": time.Duration(0),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	came["attempts"], came["ran"] = uint64(len(p.ran)), strings.Join(p.ran, ",")
	for _, tool := range p.ran {
		if p.script[tool] == nil {
			return fmt.Errorf("%s ran and has no script", tool)
		}
	}
	if err == nil {
		return st.compare(step, "ok", came)
	}
	failure, ok := errors.AsType[*toolhealth.ToolError](err)
	if !ok {
		return fmt.Errorf("an error that is no *ToolError: %w", err)
	}
	came["kind"], came["retry_after"] = failure.Verdict.Kind.String(), failure.RetryAfter
	return st.compare(step, failure.Reason.String(), came)
}

const (
	goodReply = "an answer"
	softReply = "sorry, something went wrong"
)

func checkReply(reply string) error {
	if reply == softReply {
		return errors.New("the result says that it is an error")
	}
	return nil
}

// StatusError is the error of a scripted tool that answers with an HTTP status, in
// the form in which HTTP clients return it.
type StatusError struct {
	StatusCode int
	Header     http.Header
}

// Error names the status.
func (e *StatusError) Error() string { return fmt.Sprintf("status %d", e.StatusCode) }

// run plays a tool: each run gives the next reply of its script, and further runs give
// the last one. A reply that takes a while ends early if its ctx does; only stuck
// ignores its ctx.
func (p *performance) run(ctx context.Context, tool string) (string, error) {
	reply, ok := p.next(tool)
	if !ok {
		return "", errors.New("no script")
	}
	if reply.word == "stuck" {
		time.Sleep(reply.takes)
	} else if reply.word == "keepalive" {
		for range 10 {
			select {
			case <-time.After(reply.takes / 10):
				toolhealth.KeepAlive(ctx)
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
	} else if reply.takes > 0 {
		select {
		case <-time.After(reply.takes):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return p.reply(ctx, reply)
}

// next records a run of the tool and returns its reply.
func (p *performance) next(tool string) (reply scriptedReply, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	turn := 0
	for _, name := range p.ran {
		if name == tool {
			turn++
		}
	}
	p.ran = append(p.ran, tool)
	replies := p.script[tool]
	if len(replies) == 0 {
		return reply, false
	}
	return replies[min(turn, len(replies)-1)], true
}

func (p *performance) reply(ctx context.Context, reply scriptedReply) (string, error) {
	switch reply.word {
	case "ok", "keepalive":
		return goodReply, nil
	case "acts":
		return toolhealth.Call(ctx, p.guard, reply.acts, p.run)
	case "unauthorized", "quota", "conflict":
		return "", &StatusError{StatusCode: map[string]int{"unauthorized": 401, "quota": 402, "conflict": 409}[reply.word]}
	case "soft":
		return softReply, nil
	case "http":
		e := &StatusError{StatusCode: reply.status, Header: http.Header{}}
		if reply.stated {
			e.Header.Set("Retry-After", strconv.FormatFloat(reply.after.Seconds(), 'f', -1, 64))
		}
		return "", e
	case "refused":
		return "", &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	case "reset":
		return "", &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	case "rejected":
		return "", toolhealth.WithVerdict(errors.New("invalid arguments"),
			toolhealth.Verdict{Outcome: toolhealth.OutcomeRejected, Kind: toolhealth.KindInvalidRequest})
	case "timeout":
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(24 * time.Hour):
			return "", errors.New("nothing would ever end this call")
		}
	case "stuck":
		time.Sleep(time.Hour)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
	case "panic":
		panic("a scripted panic")
	case "cancel":
		p.cancel()
		return "", ctx.Err()
	}
	return "", errors.New("a plain error")
}
