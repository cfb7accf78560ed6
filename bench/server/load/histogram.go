// Latencies in buckets that grow with them, so that recording one costs no allocation and no sorting.
package main

import (
	"math/bits"
	"time"
)

// A power of two is cut into so many buckets: a quantile is off by 1 part in 64 at most.
const (
	subBits    = 6
	subBuckets = 1 << subBits
)

// histogram counts microseconds.
type histogram struct {
	counts [(64 - subBits) * subBuckets]int64
	total  int64
}

func (h *histogram) record(latency time.Duration) {
	h.counts[bucket(uint64(max64(latency.Microseconds(), 0)))]++
	h.total++
}

func (h *histogram) merge(other *histogram) {
	for number, count := range other.counts {
		h.counts[number] += count
	}
	h.total += other.total
}

// quantile is the microseconds that this part of the latencies does not exceed.
func (h *histogram) quantile(part float64) float64 {
	rank := int64(part * float64(h.total))
	if rank >= h.total {
		rank = h.total - 1
	}
	var seen int64
	for number, count := range h.counts {
		seen += count
		if seen > rank {
			return float64(highest(number))
		}
	}
	return 0
}

func bucket(value uint64) int {
	if value < subBuckets {
		return int(value)
	}
	shift := bits.Len64(value) - subBits - 1
	return (shift+1)*subBuckets + int(value>>shift) - subBuckets
}

// highest is the largest value of a bucket.
func highest(number int) uint64 {
	if number < subBuckets {
		return uint64(number)
	}
	shift := number/subBuckets - 1
	return (uint64(number%subBuckets+subBuckets)+1)<<shift - 1
}

func max64(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}
