// Clients that only tell the broker that they live: each has a connection, and repeats its heartbeat.
package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"
)

const (
	heartBeat = 34
	// Clients of one group, each of which is told when one joins.
	membersOfGroup = 100
	// Frames of a client are small, and clients are many.
	heartbeatBuffer = 4096
	// The answers to the first heartbeats and the news of who joined are read before the start.
	joining    = 60 * time.Second
	isResponse = 1
)

type heartbeatWorker struct {
	tally
	stream
	beat   template
	opaque int32
	sent   time.Time
}

func newHeartbeatWorker(s settings, number int, socket net.Conn) (*heartbeatWorker, error) {
	made := &heartbeatWorker{beat: heartbeatTemplate(s, number), opaque: lowestOpaque, stream: stream{socket: socket}}
	made.buffer = make([]byte, heartbeatBuffer)
	// Who joins is registered before the start; what is measured are repeated heartbeats.
	made.request(time.Now())
	if err := made.flush(); err != nil {
		return nil, err
	}
	return made, made.untilAnswered(time.Now().Add(joining))
}

// heartbeatTemplate is a client that produces, and consumes one topic: what the Java client 5.5.0 sends for it.
func heartbeatTemplate(s settings, number int) template {
	group := fmt.Sprintf("%s-%d", s.group, number/membersOfGroup)
	body := fmt.Sprintf(`{"clientID":"127.0.0.1@%d#%d","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",`+
		`"consumeType":"CONSUME_PASSIVELY","groupName":"%[3]s","messageModel":"CLUSTERING","subscriptionDataSet":[`+
		`{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":1700000000000,`+
		`"tagsSet":[],"topic":"%%RETRY%%%[3]s"},`+
		`{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":1700000000000,`+
		`"tagsSet":[],"topic":"%[4]s"}],"unitMode":false}],"heartbeatFingerprint":0,`+
		`"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}],"withoutSub":false}`,
		number, 1_000_000+number, group, s.topic)
	return newTemplate(s.headers, heartBeat, nil, []byte(body))
}

func (l *heartbeatWorker) found() *tally { return &l.tally }

func (l *heartbeatWorker) request(now time.Time) {
	l.opaque++
	l.sent = now
	l.out = l.beat.appendTo(l.out, l.opaque, 0)
}

// untilAnswered reads up to the answer to the request in flight, past what the broker says by itself.
func (l *heartbeatWorker) untilAnswered(deadline time.Time) error {
	answered := false
	for !answered {
		if time.Now().After(deadline) {
			return fmt.Errorf("a heartbeat was not answered")
		}
		err := l.read(func(frame []byte, now time.Time) error {
			if isRequest(frame) {
				return nil
			}
			got, err := parseAnswer(frame)
			if err != nil {
				return err
			}
			if got.opaque != l.opaque || answered {
				return fmt.Errorf("an answer to request %d, which is not in flight", got.opaque)
			}
			answered = true
			l.requests++
			l.last = now
			l.latencies.record(now.Sub(l.sent))
			if got.code == success {
				l.messages++
			} else {
				l.failed(&got)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *heartbeatWorker) run(end time.Time, messages int64) error {
	// Those before the start do not count.
	l.tally = tally{}
	for now := time.Now(); now.Before(end) && (messages < 0 || l.requests < messages); now = time.Now() {
		l.request(now)
		if err := l.flush(); err != nil {
			return err
		}
		if err := l.untilAnswered(now.Add(patience)); err != nil {
			return err
		}
	}
	return nil
}

// isRequest is true for what the broker sends by itself: that another client has joined.
func isRequest(frame []byte) bool {
	if len(frame) < 4 {
		return false
	}
	if frame[0] == binaryHeader {
		return len(frame) >= 17 && binary.BigEndian.Uint32(frame[13:])&isResponse == 0
	}
	size := int(binary.BigEndian.Uint32(frame) & 0xFFFFFF)
	if 4+size > len(frame) {
		return false
	}
	flag, found := numberAfter(frame[4:4+size], `"flag":`)
	return found && flag&isResponse == 0
}
