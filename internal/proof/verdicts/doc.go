// Package verdicts drives the newest SDKs that Go agents use against servers on
// loopback that fail in every way that is known, and compares what
// toolhealth.Classify says of each error with what the failure means.
//
// A [Row] is one call form of an SDK and one [Failure]. failures.go and
// failures_mcp.go have the failures, intended.go what each means, one file for
// each SDK how it is driven, run.go how a row is played, table.go how the rows
// are published:
//
//	go run ./cmd/table        # writes RESULTS.md
//	go run ./cmd/table -right # adds the rows that are right to testdata/right.txt
//
// Every row is played twice: with the bare SDK, and with a RoundTripper below it
// that notes what it saw (witness.go). Retries of the SDKs are off.
package verdicts
