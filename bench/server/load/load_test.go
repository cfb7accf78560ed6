package main

import (
	"bytes"
	"testing"
	"time"
)

func TestARequestKeepsItsLengthWhateverIsWrittenOverIt(t *testing.T) {
	for _, headers := range []string{"json", "binary"} {
		s := settings{headers: headers, topic: "T", group: "G", broker: "b", body: 10, queues: 8, batch: 32}
		for _, made := range []template{sendTemplate(s, 3, 5, 1_700_000_000_000), pullTemplate(s, 5, 1_700_000_000_000)} {
			frame := made.appendTo(nil, 1_234_567, 42)
			if len(frame) != len(made.frame) || bytes.Contains(frame[8:], []byte(opaquePlace)) {
				t.Errorf("%s: %q", headers, frame)
			}
			got, err := parseAnswer(frame[4:])
			if err != nil || got.opaque != 1_234_567 {
				t.Errorf("%s: opaque %d, %v", headers, got.opaque, err)
			}
		}
	}
}

func TestAQuantileIsTheLargestLatencyOfItsBucket(t *testing.T) {
	var h histogram
	for us := 1; us <= 1000; us++ {
		h.record(time.Duration(us) * time.Microsecond)
	}
	for part, wanted := range map[float64]float64{0.5: 501, 0.99: 991, 1: 1000} {
		if got := h.quantile(part); got < wanted || got > wanted*(1+2.0/subBuckets) {
			t.Errorf("quantile %v is %v, not %v", part, got, wanted)
		}
	}
}

func TestBucketsFollowEachOther(t *testing.T) {
	for value := uint64(0); value < 1<<20; value++ {
		number := bucket(value)
		if highest(number) < value || number > 0 && highest(number-1) >= value {
			t.Fatalf("%d is in bucket %d, which ends at %d", value, number, highest(number))
		}
	}
}

func TestEveryConnectionGetsItsShare(t *testing.T) {
	var sum int64
	for number := 0; number < 8; number++ {
		sum += share(1001, 8, number)
	}
	if sum != 1001 || share(0, 8, 0) != -1 {
		t.Errorf("the shares of 1001 add up to %d", sum)
	}
}
