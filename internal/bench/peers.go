package bench

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/afex/hystrix-go/hystrix"
	bytedance "github.com/bytedance/gopkg/cloud/circuitbreaker"
	eapache "github.com/eapache/go-resiliency/breaker"
	"github.com/failsafe-go/failsafe-go"
	failsafebreaker "github.com/failsafe-go/failsafe-go/circuitbreaker"
	failsaferetry "github.com/failsafe-go/failsafe-go/retrypolicy"
	failsafetimeout "github.com/failsafe-go/failsafe-go/timeout"
	fortify "github.com/felixgeelhaar/fortify/circuitbreaker"
	"github.com/go-kratos/aegis/circuitbreaker/sre"
	rubyist "github.com/rubyist/circuitbreaker"
	"github.com/sony/gobreaker/v2"
	handy "github.com/streadway/handy/breaker"
	gozero "github.com/zeromicro/go-zero/core/breaker"
	"github.com/zeromicro/go-zero/core/logx"
)

// Names of the cases of peers that bars use.
const (
	PeerGobreaker        = "peer/gobreaker/execute"
	PeerFailsafePermits  = "peer/failsafe-go/permits"
	PeerFailsafeExecutor = "peer/failsafe-go/executor"
	PeerFailsafePolicies = "peer/failsafe-go/executor/breaker+retry+timeout"
)

// The functions that the peers protect capture no variables, so that every allocation
// is one of the peer.
func ok() error                               { return nil }
func fail() error                             { return errBoom }
func okInt() (int, error)                     { return 1, nil }
func failInt() (int, error)                   { return 0, errBoom }
func okCtxInt(context.Context) (int, error)   { return 1, nil }
func failCtxInt(context.Context) (int, error) { return 0, errBoom }

// inSyncMap keeps breakers of a peer without a registry as a user would: in a
// sync.Map, with a type assertion after each lookup.
func inSyncMap[B any](mk func(name string) B) *sync.Map {
	var m sync.Map
	for _, name := range thousand.Registered {
		m.Store(name, mk(name))
	}
	return &m
}

// keyed is the case of a peer in a sync.Map. One indirect call is part of it.
func keyed[B any](name, keeps string, mk func(name string) B, call func(B)) Case {
	return Case{Name: name, Keeps: keeps, New: func(*Teardown) func(int) {
		m := inSyncMap(mk)
		return func(n int) {
			c := over(thousand.Lookups)
			for range n {
				b, found := m.Load(c.next())
				must(found)
				call(b.(B))
			}
		}
	}}
}

// own is the case of a peer that has a registry.
func own(name, keeps string, last bool, mk func(t *Teardown) (call func(name string))) Case {
	return Case{Name: name, Keeps: keeps, Last: last, New: func(t *Teardown) func(int) {
		call := mk(t)
		return func(n int) {
			c := over(thousand.Lookups)
			for range n {
				call(c.next())
			}
		}
	}}
}

func init() { // go-zero writes to the log now and then
	logx.Disable()
	logx.DisableStat()
}

// peers are the cases of the other circuit breakers.
func peers() []Case {
	return slices.Concat(gobreakers(), failsafes(), failsafesRefused(), bareBreakers(), panels())
}

// What several peers keep of each call.
const (
	keepsCounts  = "counts, streak; no latency, no registry"
	keepsResults = "the last 3 results; no latency, no registry"
)

type goBreaker = *gobreaker.CircuitBreaker[int]

// gobreakerWith returns what makes breakers with these settings.
func gobreakerWith(s gobreaker.Settings) func(string) goBreaker {
	return func(name string) goBreaker {
		s.Name = name
		return gobreaker.NewCircuitBreaker[int](s)
	}
}

// gobreakers are the cases of sony/gobreaker: a mutex twice and two readings of the
// wall clock a call.
func gobreakers() []Case {
	type goTwoStep = *gobreaker.TwoStepCircuitBreaker[int]
	return []Case{
		keyed(PeerGobreaker, keepsCounts, gobreakerWith(gobreaker.Settings{}), func(b goBreaker) {
			_, err := b.Execute(okInt)
			must(err == nil)
		}),
		keyed("peer/gobreaker/two-step", keepsCounts,
			func(name string) goTwoStep {
				return gobreaker.NewTwoStepCircuitBreaker[int](gobreaker.Settings{Name: name})
			},
			func(b goTwoStep) {
				done, err := b.Allow()
				must(err == nil)
				done(nil)
			}),
		keyed("peer/gobreaker/failure", keepsCounts,
			gobreakerWith(gobreaker.Settings{ReadyToTrip: func(gobreaker.Counts) bool { return false }}),
			func(b goBreaker) {
				_, err := b.Execute(failInt)
				must(err == errBoom)
			}),
		keyed("peer/gobreaker/refused", "nothing of refusals", func(name string) goBreaker {
			b := gobreakerWith(gobreaker.Settings{Timeout: time.Hour})(name)
			for range 6 {
				_, _ = b.Execute(failInt)
			}
			return b
		}, func(b goBreaker) {
			_, err := b.Execute(okInt)
			must(err == gobreaker.ErrOpenState)
		}),
	}
}

type (
	failsafeBreaker  = failsafebreaker.CircuitBreaker[int]
	failsafeExecutor = failsafe.Executor[int]
)

// failsafeNamed returns a breaker that opens at the third failure, for an hour.
func failsafeNamed(string) failsafeBreaker {
	return failsafebreaker.NewBuilder[int]().WithFailureThreshold(3).WithDelay(time.Hour).Build()
}

// failsafes are the cases of failsafe-go: permits are its quick interface, an executor
// is its usual one.
func failsafes() []Case {
	return []Case{
		keyed(PeerFailsafePermits, keepsResults, failsafeNamed, func(b failsafeBreaker) {
			must(b.TryAcquirePermit())
			b.RecordSuccess()
		}),
		keyed("peer/failsafe-go/permits-rate", "counts of 10 s; no latency, no registry", func(string) failsafeBreaker {
			return failsafebreaker.NewBuilder[int]().WithFailureRateThreshold(0.5, 20, 10*time.Second).WithDelay(time.Hour).Build()
		}, func(b failsafeBreaker) {
			must(b.TryAcquirePermit())
			b.RecordSuccess()
		}),
		keyed(PeerFailsafeExecutor, keepsResults, func(name string) failsafeExecutor {
			return failsafe.With[int](failsafeNamed(name))
		}, func(e failsafeExecutor) {
			_, err := e.Get(okInt)
			must(err == nil)
		}),
		// The work of a Guard with a Timeout, in the order that the documentation of
		// failsafe-go advises: the retry outside, the timeout of each attempt inside. A
		// ctx of the caller would cost a copy of the executor in addition.
		keyed(PeerFailsafePolicies, keepsResults, func(name string) failsafeExecutor {
			retry := failsaferetry.NewBuilder[int]().WithMaxAttempts(2).
				WithBackoff(100*time.Millisecond, 5*time.Second).WithJitterFactor(1).Build()
			return failsafe.With[int](retry, failsafeNamed(name), failsafetimeout.New[int](timeLimit))
		}, func(e failsafeExecutor) {
			_, err := e.Get(okInt)
			must(err == nil)
		}),
	}
}

// failsafesRefused are the cases of failsafe-go whose breakers are open.
func failsafesRefused() []Case {
	return []Case{
		keyed("peer/failsafe-go/permits/refused", "nothing of refusals", func(name string) failsafeBreaker {
			b := failsafeNamed(name)
			b.Open()
			return b
		}, func(b failsafeBreaker) { must(!b.TryAcquirePermit()) }),
		keyed("peer/failsafe-go/executor/refused", "nothing of refusals", func(name string) failsafeExecutor {
			b := failsafeNamed(name)
			b.Open()
			return failsafe.With[int](b)
		}, func(e failsafeExecutor) {
			_, err := e.Get(okInt)
			must(err == failsafebreaker.ErrOpen)
		}),
	}
}

// bareBreakers are the cases of the other peers without a registry.
func bareBreakers() []Case {
	return []Case{
		// eapache/go-resiliency: a success writes nothing.
		keyed("peer/eapache/run", "nothing of successes; no latency, no registry", func(string) *eapache.Breaker {
			return eapache.New(3, 1, time.Minute)
		}, func(b *eapache.Breaker) { must(b.Run(ok) == nil) }),
		keyed("peer/eapache/refused", "nothing of refusals", func(string) *eapache.Breaker {
			b := eapache.New(3, 1, 100*time.Hour)
			for range 3 {
				_ = b.Run(fail)
			}
			return b
		}, func(b *eapache.Breaker) { must(b.Run(ok) == eapache.ErrBreakerOpen) }),

		keyed("peer/fortify/execute", keepsCounts, func(string) fortify.CircuitBreaker[int] {
			return fortify.New[int](fortify.Config{})
		}, func(b fortify.CircuitBreaker[int]) {
			_, err := b.Execute(bg, okCtxInt)
			must(err == nil)
		}),
		keyed("peer/fortify/refused", "nothing of refusals", func(string) fortify.CircuitBreaker[int] {
			b := fortify.New[int](fortify.Config{Timeout: 100 * time.Hour})
			for range 10 {
				_, _ = b.Execute(bg, failCtxInt)
			}
			return b
		}, func(b fortify.CircuitBreaker[int]) {
			_, err := b.Execute(bg, okCtxInt)
			must(err != nil)
		}),

		// kratos aegis: drops by ratio, as in Google's SRE book; it never opens.
		keyed("peer/aegis/allow+mark", "counts of 3 s; no latency, no registry", func(string) *sre.Breaker {
			return sre.NewBreaker().(*sre.Breaker)
		}, func(b *sre.Breaker) {
			must(b.Allow() == nil)
			b.MarkSuccess()
		}),

		// streadway/handy has one goroutine for each breaker, and a ratio.
		threads(keyed("peer/handy/allow+success", "ratio of 5 s; no registry", func(string) handy.Breaker {
			return handy.NewBreaker(0.5)
		}, func(b handy.Breaker) {
			must(b.Allow())
			b.Success(time.Microsecond)
		})),
	}
}

// panels are the cases of the peers that have a registry.
func panels() []Case {
	return []Case{
		own("peer/rubyist/panel", "counts of 10 s, streak; no latency; registry", true, func(*Teardown) func(string) {
			p := rubyist.NewPanel()
			for _, name := range thousand.Registered {
				p.Add(name, rubyist.NewConsecutiveBreaker(3))
			}
			return func(name string) {
				b, found := p.Get(name)
				must(found && b.Call(ok, 0) == nil)
			}
		}),
		own("peer/bytedance/panel", "counts of 10 s, streak; no latency; registry", false, func(t *Teardown) func(string) {
			p, err := bytedance.NewPanel(nil, bytedance.Options{
				CoolingTimeout: time.Minute, DetectTimeout: time.Minute,
				ShouldTrip: bytedance.ConsecutiveTripFunc(math.MaxInt32),
			})
			must(err == nil)
			t.Add(p.Close)
			return func(name string) {
				must(p.IsAllowed(name))
				p.Succeed(name)
			}
		}),
		own("peer/go-zero/do", "counts of 10 s, last errors; no latency; registry", true, func(*Teardown) func(string) {
			for _, name := range thousand.Registered {
				gozero.GetBreaker(name)
			}
			return func(name string) { must(gozero.Do(name, ok) == nil) }
		}),
		// hystrix-go takes a ticket back from another goroutine after Do returned,
		// so a tight loop may find none left: a refusal is not an error here.
		threads(own("peer/hystrix-go/do", "counts, latency percentiles of 10 s; registry", true, func(*Teardown) func(string) {
			for _, name := range thousand.Registered {
				hystrix.ConfigureCommand(name, hystrix.CommandConfig{MaxConcurrentRequests: 1000})
				must(hystrix.Do(name, ok, nil) == nil) // makes the circuit
			}
			return func(name string) { _ = hystrix.Do(name, ok, nil) }
		})),
	}
}

// threads is a case whose loop starts goroutines and waits for them.
func threads(c Case) Case {
	c.Workers, c.Last = 1, true
	return c
}
