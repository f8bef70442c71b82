package toolhealth

import "github.com/toolhealth/toolhealth/internal/race"

// RaceEnabled is race.Enabled, for the tests outside the package.
const RaceEnabled = race.Enabled
