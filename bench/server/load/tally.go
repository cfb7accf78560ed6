// What one connection has counted, and what all of them have together.
package main

import "time"

type tally struct {
	messages  int64
	requests  int64
	failures  int64
	failure   string
	last      time.Time
	latencies histogram
	series    series

	// Of messages that were to come at a certain time: how much later they came, and when the log took them.
	lateness histogram
	early    int64
	firstMs  int64
	lastMs   int64
}

func (t *tally) failed(got *answer) {
	t.failures++
	if t.failure == "" {
		t.failure = got.complaint()
	}
}

// came counts a message that was due at a time and was stored at another, in milliseconds.
func (t *tally) came(dueMs, storedMs int64) {
	if storedMs < dueMs {
		t.early++
	}
	t.lateness.record(time.Duration(storedMs-dueMs) * time.Millisecond)
	if t.firstMs == 0 || storedMs < t.firstMs {
		t.firstMs = storedMs
	}
	t.lastMs = max64(t.lastMs, storedMs)
}

func (t *tally) merge(other *tally) {
	t.messages += other.messages
	t.requests += other.requests
	t.failures += other.failures
	if t.failure == "" {
		t.failure = other.failure
	}
	if other.last.After(t.last) {
		t.last = other.last
	}
	t.latencies.merge(&other.latencies)
	t.series.merge(&other.series)
	t.lateness.merge(&other.lateness)
	t.early += other.early
	if other.firstMs != 0 && (t.firstMs == 0 || other.firstMs < t.firstMs) {
		t.firstMs = other.firstMs
	}
	t.lastMs = max64(t.lastMs, other.lastMs)
}
