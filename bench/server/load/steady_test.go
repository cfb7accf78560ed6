package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

func TestALatencyBelongsToTheStretchItsRequestWasMadeIn(t *testing.T) {
	one, other := series{step: 100 * time.Millisecond}, series{step: 100 * time.Millisecond}
	one.record(250*time.Millisecond, 3*time.Millisecond)
	other.record(299*time.Millisecond, time.Millisecond)
	other.record(10*time.Millisecond, 500*time.Millisecond)
	var sum series
	sum.merge(&one)
	sum.merge(&other)
	found := sum.points()
	if len(found) != 2 || found[0].Seconds != 0 || found[0].Max != 500_000 || found[1].Seconds != 0.2 || found[1].Count != 2 {
		t.Fatalf("%+v", found)
	}
	if found[1].P50 != 3000 || found[1].P999 != 3000 || found[1].Max != 3000 {
		t.Errorf("%+v", found[1])
	}
}

func TestWithoutAStepThereIsNoSeries(t *testing.T) {
	var none series
	none.record(time.Second, time.Second)
	if len(none.points()) != 0 {
		t.Errorf("%+v", none.points())
	}
}

func TestASteadySenderDoesNotWaitForAnswers(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	const messages = 50
	s := settings{mode: "steady", headers: "json", topic: "T", group: "G", broker: "b", body: 10, queues: 2,
		connections: 1, inFlight: 1, rate: 1000, seriesStep: time.Hour}
	go func() {
		var opaques []int32
		for len(opaques) < messages {
			opaques = append(opaques, requestAt(there).opaque)
		}
		for _, each := range opaques {
			there.Write(answerTo(each, `"code":0`, nil))
		}
	}()
	client := newSteadyWorker(s, 0, here)
	if err := client.run(time.Now().Add(time.Minute), messages); err != nil {
		t.Fatal(err)
	}
	found := client.found()
	if found.messages != messages || found.requests != messages || found.failures != 0 {
		t.Errorf("%d messages, %d requests, %d failures", found.messages, found.requests, found.failures)
	}
	// The first was sent 49 milliseconds before the last, and none was answered before that.
	if longest := found.series.points()[0].Max; longest < 49_000 {
		t.Errorf("the longest took %v µs", longest)
	}
}

func TestABodyLiesBehindTheHosts(t *testing.T) {
	for flags, more := range map[uint32]int{0: 0, 0x10: 12, 0x20: 12, 0x30: 24} {
		record := recordWith(flags, more, []byte("hello"))
		if got := string(bodyOf(record)); got != "hello" {
			t.Errorf("flags %x: %q", flags, got)
		}
		if got := bodyOf(record[:84+more]); got != nil {
			t.Errorf("flags %x: %q of a record that is cut off", flags, got)
		}
	}
}

func TestAFollowerTellsHowLongAMessageTook(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	s := settings{mode: "longpoll", headers: "json", topic: "T", group: "G", broker: "b", body: stampSize, queues: 1,
		connections: 1, followers: 1, batch: 32, offsets: []int64{5}}
	met := &meeting{sockets: []net.Conn{here}}
	met.sent.Store(2)
	one := newFollower(s, 0, here, met)
	sent := time.Now().Add(-40 * time.Millisecond)
	go func() {
		pull := requestAt(there)
		there.Write(answerTo(pull.opaque, `"code":19`, nil)) // nothing yet: it asks again
		pull = requestAt(there)
		frame := make([]byte, 100)
		stamp(frame, stampSize, sent)
		record := recordWith(0, 0, frame[len(frame)-stampSize:])
		there.Write(answerTo(pull.opaque, `"code":0,"extFields":{"nextBeginOffset":"7"}`, append(record, record...)))
		requestAt(there)
		met.end()
	}()
	if err := one.run(time.Time{}, -1); err != nil {
		t.Fatal(err)
	}
	if one.messages != 2 || met.lost() != 0 || one.offsets[0] != 7 {
		t.Errorf("%d messages, %d lost, goes on at %d", one.messages, met.lost(), one.offsets[0])
	}
	if took := one.latencies.quantile(0.5); took < 40_000 {
		t.Errorf("half of them took %v µs", took)
	}
}

func TestConnectionsGoRoundTheBrokers(t *testing.T) {
	s := settings{address: "a:1,b:2", broker: "one,two"}
	for number, wanted := range []string{"a:1 one", "b:2 two", "a:1 one"} {
		if here := s.at(number); here.address+" "+here.broker != wanted {
			t.Errorf("connection %d goes to %s of %s", number, here.address, here.broker)
		}
	}
}

func requestAt(socket net.Conn) answer {
	var size [4]byte
	if _, err := io.ReadFull(socket, size[:]); err != nil {
		return answer{}
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(socket, frame); err != nil {
		return answer{}
	}
	got, _ := parseAnswer(frame) // a request has the same places
	return got
}

func answerTo(opaque int32, fields string, body []byte) []byte {
	header := fmt.Sprintf(`{%s,"flag":1,"opaque":%d}`, fields, opaque)
	frame := appendUint32(nil, uint32(4+len(header)+len(body)))
	frame = appendUint32(frame, uint32(len(header)))
	return append(append(frame, header...), body...)
}

// recordWith is a stored message with so many bytes more of hosts.
func recordWith(flags uint32, more int, body []byte) []byte {
	record := make([]byte, 84+more+4, 84+more+4+len(body)+3)
	binary.BigEndian.PutUint32(record[4:], magicV1)
	binary.BigEndian.PutUint32(record[36:], flags)
	binary.BigEndian.PutUint32(record[84+more:], uint32(len(body)))
	record = append(append(record, body...), 1, 'T', 0, 0)
	binary.BigEndian.PutUint32(record, uint32(len(record)))
	return record
}
