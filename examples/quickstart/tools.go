package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/toolhealth/toolhealth"
)

// Names of the tools. The model knows all but the backup.
const (
	primary = "search"
	backup  = "search_backup"
	weather = "weather"
)

// tool is a function that the model may call.
type tool func(ctx context.Context, argument string) (string, error)

// overHTTP returns a tool that sends its argument to a server.
func overHTTP(client *http.Client, address string) tool {
	return func(ctx context.Context, argument string) (string, error) {
		target := url.URL{Scheme: "http", Host: address, Path: "/", RawQuery: url.Values{"q": {argument}}.Encode()}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
		if err != nil {
			return "", err
		}
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		if bad := toolhealth.CheckStatus(resp.StatusCode, resp.Header); bad != nil {
			return "", bad
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		return string(body), err
	}
}

// world is the servers, and the stage of the primary's outage.
type world struct {
	tools   map[string]tool
	servers map[string]*server
	stage   int
}

// troubles are the stages of the primary's outage, by the share of calls before them.
var troubles = []struct {
	after float64
	news  string
	mood  mood
}{
	{0.11, "search begins to answer 503", busy},
	{0.33, "search hangs", hanging},
	{0.52, "search is gone: connection refused", gone},
	{0.70, "search is back", well},
}

// startTools starts the servers; timeout is the limit of a call.
func startTools(timeout time.Duration) (*world, error) {
	// No connection is kept, so each call finds out whether the port is open.
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	w := &world{tools: make(map[string]tool), servers: make(map[string]*server)}
	for name, answer := range map[string]http.HandlerFunc{
		primary: func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "3 pages on %s", r.FormValue("q"))
		},
		backup: func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "1 page on %s", r.FormValue("q"))
		},
		weather: func(w http.ResponseWriter, r *http.Request) {
			if r.FormValue("q") == "Atlantis" {
				http.Error(w, "no such place", http.StatusNotFound)
				return
			}
			fmt.Fprintf(w, "21 degrees in %s", r.FormValue("q"))
		},
	} {
		s := &server{answer: answer, address: "127.0.0.1:0"}
		if err := s.listen(); err != nil {
			w.stop()
			return nil, err
		}
		w.servers[name] = s
		w.tools[name] = overHTTP(client, s.address)
	}
	return w, nil
}

// turn begins the next stage of the outage if this share of the calls is done.
func (w *world) turn(done float64) (news string, err error) {
	if w.stage == len(troubles) || done < troubles[w.stage].after {
		return "", nil
	}
	next := troubles[w.stage]
	w.stage++
	return next.news, w.servers[primary].become(next.mood)
}

func (w *world) stop() {
	for _, s := range w.servers {
		s.close()
	}
}

// mood is how a server treats its callers.
type mood int32

const (
	well mood = iota
	busy
	hanging
	gone
)

// server is a HTTP server that can be told to behave badly.
type server struct {
	answer  http.HandlerFunc
	address string
	mood    atomic.Int32
	http    *http.Server
	done    chan struct{} // closed when Serve has returned
}

func (s *server) listen() error {
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	s.address = l.Addr().String() // the same address after the outage
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: time.Second}
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}()
	return nil
}

func (s *server) close() {
	_ = s.http.Close()
	<-s.done
}

func (s *server) become(next mood) error {
	before := mood(s.mood.Swap(int32(next)))
	switch {
	case next == gone:
		s.close()
	case before == gone:
		return s.listen()
	}
	return nil
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch mood(s.mood.Load()) {
	case busy:
		http.Error(w, "out of capacity", http.StatusServiceUnavailable)
	case hanging:
		<-r.Context().Done() // until the caller disconnects
	default:
		s.answer(w, r)
	}
}
