// Package promhealth exports a toolhealth registry to Prometheus.
//
// [New] returns a Collector, which reads the registry when it is scraped: a call pays
// nothing for it, and no gauge is older than its scrape. Beside the Go package there are
// alerts.yml, alert rules with a line for the person who is woken, and dashboard.json, a
// page for Grafana.
//
//	collector, err := promhealth.New(registry, promhealth.Options{})
//	...
//	prometheus.MustRegister(collector)
//
// Make the Collector where the registry is made, before there is traffic: it counts
// transitions from then on. The other figures are the registry's own.
//
// Names of tools come from a language model, so at most Options.MaxTools have series of
// their own. The counters of the others are added up as "_other", which never goes back.
//
// How long calls took is exported twice: as a native histogram with the registry's own
// buckets, and as a classic one with two buckets to a doubling, or one where few calls
// are. There are no exemplars, because nothing is known of a single call when a scrape
// comes, and no names of operators.
package promhealth

//go:generate go run ./internal/page
