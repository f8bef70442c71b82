package registry_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/toolhealth/toolhealth"
	"github.com/toolhealth/toolhealth/internal/proof/setup"
	"github.com/toolhealth/toolhealth/internal/proof/tooltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What setup and tooltest have, by short names.
var (
	registryWith  = setup.Registry
	routerWith    = setup.Router
	guardOn       = setup.Guard
	failTimes     = setup.Fail
	healthOf      = setup.Health
	recordEvents  = setup.RecordEvents
	endsGoroutine = tooltest.EndsGoroutine
)

func namesOf(r *toolhealth.Registry) (names []string) {
	for name := range r.All() {
		names = append(names, name)
	}
	return names
}
