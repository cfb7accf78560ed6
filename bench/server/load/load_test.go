package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"testing"
	"time"
)

func TestARequestKeepsItsLengthWhateverIsWrittenOverIt(t *testing.T) {
	for _, headers := range []string{"json", "binary", "go", "node", "cpp"} {
		s := settings{headers: headers, topic: "T", group: "G", broker: "b", body: 10, queues: 8, batch: 32, expression: "*"}
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

func TestASendKeepsItsQueueInEveryShape(t *testing.T) {
	for _, headers := range []string{"json", "binary", "go", "node", "cpp"} {
		s := settings{mode: "send", headers: headers, topic: "T", group: "G", broker: "b", body: 10, queues: 8, batch: 32}
		made := sendTemplate(s, 3, 5, 1_700_000_000_000)
		if made.queueID <= 8 || made.frame[made.queueID] != '5' {
			t.Errorf("%s: the queue is not at %d of %q", headers, made.queueID, made.frame)
		}
	}
}

func TestOneOfSoManySendsHasTheOtherTag(t *testing.T) {
	for _, headers := range []string{"json", "binary", "go", "node", "cpp"} {
		s := settings{mode: "send", headers: headers, topic: "T", group: "G", broker: "b", body: 10, queues: 8}
		made := sendTemplate(s, 3, 5, 1_700_000_000_000)
		for number, wanted := range map[int64]string{0: "TagA", 1: "TagB", 10: "TagA"} {
			frame := made.appendTo(nil, 1_234_567, number)
			made.setTag(frame, number, 10)
			if !bytes.Contains(frame, []byte(wanted)) || len(frame) != len(made.frame) {
				t.Errorf("%s: message %d in %q", headers, number, frame)
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

func TestATransactionIsEndedWhereItsHalfMessageLies(t *testing.T) {
	s := settings{mode: "transaction", headers: "json", topic: "T", group: "G", broker: "b", body: 10, queues: 1}
	half := halfMessage{number: 7}
	got := answer{header: []byte(`{"code":0,"extFields":{"queueOffset":"42","msgId":"7F00000100002A9F0000000000000100"}}`)}
	if err := half.read(&got); err != nil || half.physical != 256 || half.queue != 42 || !half.stored {
		t.Fatalf("%+v, %v", half, err)
	}
	ending := endTemplate(s, 3, 1_700_000_000_000)
	frame := half.appendEnd(nil, &ending, 1_234_567)
	for _, wanted := range []string{
		`"tranStateTableOffset":"000000000042"`, `"commitLogOffset":"000000000256"`, `000000000007"`, `"code":37`,
	} {
		if !bytes.Contains(frame, []byte(wanted)) {
			t.Errorf("%s is not in %q", wanted, frame)
		}
	}
}

func TestAPopIsAcknowledgedWithItsReceipts(t *testing.T) {
	header := `{"extFields":{"popTime":"5","invisibleTime":"60000","reviveQid":"3","startOffsetInfo":"0 1 10;0 4 7"}}`
	r, err := readReceipts(&answer{header: []byte(header)})
	if err != nil || r.starts[1] != "10" || r.starts[4] != "7" || r.reviveQueue != "3" {
		t.Fatalf("%+v, %v", r, err)
	}
	l := newPopWorker(settings{topic: "T", group: "G", broker: "b", inFlight: 1, batch: 32, mode: "pop"}, nil)
	l.appendAck(1_000_001, &r, 4, 9)
	if !bytes.Contains(l.out, []byte(`"extraInfo":"7 5 60000 3 0 b 4 9","offset":"9"`)) {
		t.Errorf("%q", l.out)
	}
	l.out = nil
	l.appendBatch(1_000_001, &r, map[int][]int64{1: {10, 11, 13}})
	if !bytes.Contains(l.out, []byte(`"b":"Cw==","c":"G","it":60000,"pt":5,"q":1,"r":"0","rq":3,"so":10,"t":"T"`)) {
		t.Errorf("%q", l.out)
	}
}

func TestTimesAreSpreadOverTheWholeRange(t *testing.T) {
	s := settings{dueFrom: 1_000_000, dueTo: 3_000_000}
	seen := map[int64]bool{}
	for number := int64(0); number < 1000; number++ {
		due := s.dueOf(number)
		if due < s.dueFrom || due >= s.dueTo {
			t.Fatalf("message %d is due at %d", number, due)
		}
		seen[due] = true
	}
	if len(seen) != 1000 {
		t.Errorf("%d messages share times", 1000-len(seen))
	}
}

func TestAMessageThatCameBeforeItsTimeIsEarly(t *testing.T) {
	var total, one tally
	one.came(1000, 1250)
	one.came(1000, 999)
	total.merge(&one)
	if total.early != 1 || total.firstMs != 999 || total.lastMs != 1250 || total.lateness.total != 2 {
		t.Errorf("%+v", total.early)
	}
}

func TestABatchCarriesItsMessagesWithKeysOfTheirOwn(t *testing.T) {
	s := settings{mode: "send-batch", headers: "json", topic: "T", group: "G", broker: "b", body: 10, queues: 8, batch: 3}
	made := batchTemplate(s, 3, 5, 1_700_000_000_000)
	frame := made.appendTo(nil, 1_234_567, 7)
	got, err := parseAnswer(frame[4:])
	if err != nil || got.code != sendBatchMessage || got.opaque != 1_234_567 {
		t.Fatalf("%+v, %v", got, err)
	}
	rest, count := got.body, 0
	for ; len(rest) > 0; count++ {
		size := int(binary.BigEndian.Uint32(rest))
		if size > len(rest) || !bytes.Equal(rest[batchItemHead:batchItemHead+10], content(10)) {
			t.Fatalf("message %d: %q", count, rest)
		}
		if key := fmt.Sprintf("%012X\x02", 7*3+count); !bytes.Contains(rest[:size], []byte(key)) {
			t.Errorf("message %d has not key %q: %q", count, key, rest[:size])
		}
		rest = rest[size:]
	}
	if count != s.batch || s.perRequest() != 3 {
		t.Errorf("%d messages", count)
	}
}

func TestConnectionsShareManyQueuesAndAllSendToFew(t *testing.T) {
	for _, each := range []struct{ topics, queues, connections, wanted int }{
		{1, 8, 64, 8 * 64}, {3, 100, 8, 300}, {1, 1001, 8, 1001}, {2, 1, 3, 6},
	} {
		s := settings{
			mode: "send", headers: "json", topic: "T", group: "G", broker: "b", body: 10,
			queues: each.queues, topics: each.topics, connections: each.connections,
		}
		seen, count := map[string]bool{}, 0
		for number := 0; number < s.connections; number++ {
			made := newSpread(s, number, 1_700_000_000_000)
			for request := 0; request < made.within; request++ {
				frame, _ := made.appendTo(nil, 1_234_567, int64(request))
				topic, _ := textAfter(frame, `"b":"`)
				queue, _ := textAfter(frame, `"e":"`)
				seen[topic+" "+queue] = true
				count++
			}
		}
		if len(seen) != each.topics*each.queues || count != each.wanted {
			t.Errorf("%+v: %d queues, %d requests", each, len(seen), count)
		}
	}
}

func TestTheQueueOfARequestIsWrittenOverWhateverItsLength(t *testing.T) {
	for _, headers := range []string{"json", "binary"} {
		for _, mode := range []string{"send", "send-batch"} {
			s := settings{
				mode: mode, headers: headers, topic: "T", group: "G", broker: "b", body: 10, batch: 2,
				queues: 1000, topics: 2, connections: 1,
			}
			made := newSpread(s, 0, 1_700_000_000_000)
			for _, number := range []int64{0, 9, 10, 99, 100, 999, 1000, 1042, 1999, 2000} {
				frame, _ := made.appendTo(nil, 1_234_567, number)
				here := s
				here.topic = s.topicOf(int(number) % 2000 / 1000)
				wanted := sendTemplate(here, 0, int(number)%1000, 1_700_000_000_000)
				if mode == "send-batch" {
					wanted = batchTemplate(here, 0, int(number)%1000, 1_700_000_000_000)
				}
				if !bytes.Equal(frame, wanted.appendTo(nil, 1_234_567, number)) {
					t.Errorf("%s, %s: request %d is %q", mode, headers, number, frame)
				}
			}
		}
	}
}

func TestARequestIsSignedWithWhatItHas(t *testing.T) {
	for _, headers := range []string{"json", "binary"} {
		s := settings{
			mode: "send", headers: headers, topic: "T", group: "G", broker: "b", body: 10, queues: 8, topics: 1, connections: 1,
			accessKey: "alice", secretKey: "secret",
		}
		requests := newSpread(s, 0, 1_700_000_000_000)
		for number := int64(0); number < 3; number++ {
			frame, used := requests.appendTo(nil, 1_234_567, number)
			used.sign(frame)
			key := fmt.Sprintf("7F0000010000%08X%012X", uint32(1_700_000_000_000&0xFFFFFFFF), number)
			// AccessKey and a to n, in this order, without the signature; then the body.
			content := "alice" + "G" + "T" + "TBW102" + "4" + fmt.Sprint(number%8) + "0" + "1700000000000" + "0" +
				"UNIQ_KEY\x01" + key + "\x02WAIT\x01true\x02TAGS\x01TagA\x02" + "0" + "false" + "false" + "b"
			mac := hmac.New(sha1.New, []byte("secret"))
			mac.Write(append([]byte(content), frame[len(frame)-10:]...))
			if wanted := base64.StdEncoding.EncodeToString(mac.Sum(nil)); !bytes.Contains(frame, []byte(wanted)) {
				t.Errorf("%s: %s is not in %q", headers, wanted, frame)
			}
		}
	}
}
