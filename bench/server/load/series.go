// Latencies over time: those of the requests that were made in each stretch of a run.
package main

import (
	"sort"
	"time"
)

// series keeps every latency by itself: a stretch has too few of them for buckets to be worth their room.
type series struct {
	step      time.Duration
	stretches [][]float32
}

// point is one stretch: when it began, how many requests were made in it, and how long their answers took.
type point struct {
	Seconds float64 `json:"seconds"`
	Count   int     `json:"count"`
	P50     float64 `json:"p50_us"`
	P999    float64 `json:"p999_us"`
	Max     float64 `json:"max_us"`
}

// record takes the latency of a request that was made so long after the start; without a step it does nothing.
func (s *series) record(at, latency time.Duration) {
	if s.step <= 0 {
		return
	}
	number := int(max64(int64(at), 0) / int64(s.step))
	for len(s.stretches) <= number {
		s.stretches = append(s.stretches, nil)
	}
	s.stretches[number] = append(s.stretches[number], float32(latency.Nanoseconds())/1e3)
}

func (s *series) merge(other *series) {
	if other.step > 0 {
		s.step = other.step
	}
	for number, each := range other.stretches {
		for len(s.stretches) <= number {
			s.stretches = append(s.stretches, nil)
		}
		s.stretches[number] = append(s.stretches[number], each...)
	}
}

// points leaves out intervals without requests.
func (s *series) points() []point {
	var found []point
	for number, each := range s.stretches {
		if len(each) == 0 {
			continue
		}
		sort.Slice(each, func(a, b int) bool { return each[a] < each[b] })
		found = append(found, point{
			Seconds: (time.Duration(number) * s.step).Seconds(), Count: len(each),
			P50: nth(each, 0.5), P999: nth(each, 0.999), Max: float64(each[len(each)-1]),
		})
	}
	return found
}

func nth(sorted []float32, part float64) float64 {
	at := int(part * float64(len(sorted)))
	if at >= len(sorted) {
		at = len(sorted) - 1
	}
	return float64(sorted[at])
}
