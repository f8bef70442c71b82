package bench

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/sony/gobreaker/v2"

	"github.com/toolhealth/toolhealth"
)

// TestPeers_DoWhatREADMESays runs the rows of the README's table of gobreaker and
// failsafe-go that are about behavior. It fails when a newer version does better;
// then the table has to change.
func TestPeers_DoWhatREADMESays(t *testing.T) {
	for name, claim := range map[string]func(*testing.T){
		"canceled callers": claimCanceled,
		"lost probes":      claimLostProbe,
		"panicking probe":  claimPanickingProbe,
		"late successes":   claimLateSuccess,
		"429 with wait":    claimStatedWait,
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, claim) })
	}
}

const peerCooldown = 30 * time.Second

var errDown = errors.New("down")

func newGobreaker() *gobreaker.TwoStepCircuitBreaker[int] {
	return gobreaker.NewTwoStepCircuitBreaker[int](gobreaker.Settings{
		Timeout:     peerCooldown,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 3 },
	})
}

// newFailsafe returns a breaker with one probe at a time, as the other two have by
// default.
func newFailsafe() circuitbreaker.CircuitBreaker[int] {
	return circuitbreaker.NewBuilder[int]().WithFailureThreshold(3).WithSuccessThreshold(1).WithDelay(peerCooldown).Build()
}

// openAll makes three failing calls of each.
func openAll(t *testing.T, g *gobreaker.TwoStepCircuitBreaker[int], f circuitbreaker.CircuitBreaker[int], gate *toolhealth.Gate) {
	t.Helper()
	for range 3 {
		done, err := g.Allow()
		if err != nil {
			t.Fatal(err)
		}
		done(errDown)
		if !f.TryAcquirePermit() {
			t.Fatal("failsafe-go refuses")
		}
		f.RecordFailure()
		permit, err := gate.Allow(t.Context(), "search")
		if err != nil {
			t.Fatal(err)
		}
		permit.Done(t.Context(), errDown)
	}
	if g.State() != gobreaker.StateOpen || f.State() != circuitbreaker.OpenState || gate.Registry.Available("search") {
		t.Fatal("not all three are open")
	}
}

func newGate() *toolhealth.Gate { return &toolhealth.Gate{Registry: toolhealth.NewRegistry()} }

func claimCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g, f, registry := newGobreaker(), newFailsafe(), toolhealth.NewRegistry()
	executor := failsafe.With[int](f).WithContext(ctx)
	for range 3 {
		if done, err := g.Allow(); err == nil {
			done(context.Canceled)
		}
		_, _ = executor.Get(func() (int, error) { return 0, context.Canceled })
		registry.Record("search", toolhealth.Classify(ctx, context.Canceled), time.Second)
	}
	if g.State() != gobreaker.StateOpen {
		t.Errorf("gobreaker is %v", g.State())
	}
	if f.State() != circuitbreaker.OpenState {
		t.Errorf("failsafe-go is %v", f.State())
	}
	if !registry.Available("search") {
		t.Error("toolhealth is open")
	}
}

func claimLostProbe(t *testing.T) {
	g, f, gate := newGobreaker(), newFailsafe(), newGate()
	openAll(t, g, f, gate)
	time.Sleep(peerCooldown + time.Second)
	if _, err := g.Allow(); err != nil {
		t.Fatal(err)
	}
	if !f.TryAcquirePermit() {
		t.Fatal("failsafe-go gives no probe")
	}
	if permit, err := gate.Allow(t.Context(), "search"); err != nil || !permit.Probe() {
		t.Fatal("toolhealth gives no probe")
	}
	time.Sleep(24 * time.Hour)
	if _, err := g.Allow(); err == nil {
		t.Error("gobreaker gives another probe")
	}
	if f.TryAcquirePermit() {
		t.Error("failsafe-go gives another probe")
	}
	if permit, err := gate.Allow(t.Context(), "search"); err != nil || !permit.Probe() {
		t.Error("toolhealth gives no other probe")
	}
}

func claimPanickingProbe(t *testing.T) {
	f := newFailsafe()
	executor := failsafe.With[int](f)
	for range 3 {
		_, _ = executor.Get(func() (int, error) { return 0, errDown })
	}
	time.Sleep(peerCooldown + time.Second)
	func() {
		defer func() { _ = recover() }()
		_, _ = executor.Get(func() (int, error) { panic("probe") })
	}()
	time.Sleep(24 * time.Hour)
	if _, err := executor.Get(func() (int, error) { return 1, nil }); !errors.Is(err, circuitbreaker.ErrOpen) {
		t.Errorf("failsafe-go recovers: %v", err)
	}
}

func claimLateSuccess(t *testing.T) {
	g, f, gate := newGobreaker(), newFailsafe(), newGate()
	lateDone, err := g.Allow()
	if err != nil || !f.TryAcquirePermit() {
		t.Fatal("refused")
	}
	late, err := gate.Allow(t.Context(), "search")
	if err != nil {
		t.Fatal(err)
	}
	openAll(t, g, f, gate)
	time.Sleep(peerCooldown + time.Second)
	_, _ = g.Allow()
	f.TryAcquirePermit()
	probe, err := gate.Allow(t.Context(), "search")
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Release()

	lateDone(nil)
	f.RecordSuccess()
	late.Done(t.Context(), nil)
	if g.State() != gobreaker.StateHalfOpen {
		t.Errorf("gobreaker is %v", g.State())
	}
	if f.State() != circuitbreaker.ClosedState {
		t.Errorf("failsafe-go is %v", f.State())
	}
	if h, _ := gate.Registry.Health("search"); h.State != toolhealth.StateHalfOpen {
		t.Errorf("toolhealth is %v", h.State)
	}
}

func claimStatedWait(t *testing.T) {
	date := time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)
	for header, peerWaits := range map[string]time.Duration{"60": time.Minute, date: peerCooldown} {
		f := circuitbreaker.NewBuilder[*http.Response]().
			HandleIf(func(r *http.Response, _ error) bool { return r.StatusCode == 429 }).
			WithDelay(peerCooldown).WithDelayFunc(failsafehttp.DelayFunc).Build()
		_, _ = failsafe.With[*http.Response](f).Get(func() (*http.Response, error) {
			return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {header}}}, nil
		})
		if got := f.RemainingDelay(); got != peerWaits {
			t.Errorf("failsafe-go waits %v after %q, want %v", got, header, peerWaits)
		}

		registry := toolhealth.NewRegistry()
		registry.Record("search", toolhealth.ClassifyHTTP(429, map[string][]string{"Retry-After": {header}}), time.Second)
		if h, _ := registry.Health("search"); h.Available || h.RetryAfter != time.Minute {
			t.Errorf("toolhealth waits %v after %q", h.RetryAfter, header)
		}
	}
}
