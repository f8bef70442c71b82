package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// text is an io.Writer for two goroutines.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// The page shows the outage of a tool that is really down, and an operator can act.
func TestServe_ShowsToolsThatFail(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var out text
	done := make(chan error, 1)
	go func() { done <- serve(ctx, parse(embeddedCalls), 20*time.Millisecond, "127.0.0.1:0", &out) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	said := func(want *regexp.Regexp, read func() string) []string {
		t.Helper()
		got := ""
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if got = read(); want.MatchString(got) {
				return want.FindStringSubmatch(got)
			}
		}
		t.Fatalf("%v did not come, only %s", want, got)
		return nil
	}
	address := said(regexp.MustCompile(`http://(\S+)/tools/`), out.String)[1]
	get := func(path string) func() string {
		return func() string {
			resp, err := client.Get("http://" + address + path)
			if err != nil {
				return err.Error()
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			return string(body)
		}
	}
	said(regexp.MustCompile(`1 of 3 tools cannot be called`), get("/"))
	said(regexp.MustCompile(`closed: the probe succeeded`), get("/tools/"))
	said(regexp.MustCompile(`(?s)search begins to answer 503.*search begins to answer 503`), out.String)

	isolate := func(host string) int {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/tools/isolate", strings.NewReader(url.Values{"tool": {weather}}.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := client.Transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if code := isolate("evil.test"); code != http.StatusForbidden {
		t.Errorf("a stranger's name may act: %d", code)
	}
	if code := isolate(address); code != http.StatusSeeOther {
		t.Errorf("status %d", code)
	}
	said(regexp.MustCompile(`isolated by you`), get("/tools/"))
}

func TestServe_SaysWhatIsWrong(t *testing.T) {
	list := t.TempDir() + "/calls.txt"
	if err := os.WriteFile(list, []byte("# nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-serve", "-file", list}, {"-serve", "-addr", "256.0.0.1:1"}} {
		var stderr bytes.Buffer
		if code := run(args, io.Discard, &stderr); code != 1 || stderr.Len() == 0 {
			t.Errorf("%v: exit code %d, %s", args, code, &stderr)
		}
	}
}
