// One connection: every answer makes room for the next request, and what can be sent leaves in one write.
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	readBuffer = 256 << 10
	// A server that says nothing for so long has lost a request.
	patience = 30 * time.Second
)

const (
	success           = 0
	pullNotFound      = 19
	pullOffsetMoved   = 21
	pullWithNoMatches = 20
)

// slot is a place for one request in flight.
type slot struct {
	sent   time.Time
	queue  int
	offset int64
	round  int32
}

type lane struct {
	settings  settings
	number    int
	socket    net.Conn
	templates []template
	slots     []slot
	out       []byte
	counter   int64

	messages  int64
	requests  int64
	failures  int64
	failure   string
	latencies histogram
}

func newLane(s settings, number int, socket net.Conn) *lane {
	made := &lane{settings: s, number: number, socket: socket, slots: make([]slot, s.inFlight)}
	now := time.Now().UnixMilli()
	for queue := 0; queue < s.queues; queue++ {
		if s.mode == "send" {
			made.templates = append(made.templates, sendTemplate(s, number, queue, now))
		} else {
			made.templates = append(made.templates, pullTemplate(s, queue, now))
		}
	}
	for at := range made.slots {
		made.slots[at].queue = (number + at) % s.queues
	}
	return made
}

// run keeps the slots busy until the end, or until so many messages were asked for, and waits for every answer.
func (l *lane) run(end time.Time, messages int64) error {
	open := 0
	now := time.Now()
	for at := range l.slots {
		if messages >= 0 && int64(open) >= messages {
			break
		}
		l.request(at, now)
		open++
	}
	if err := l.flush(); err != nil {
		return err
	}
	buffer := make([]byte, readBuffer)
	held := 0
	for open > 0 {
		if err := l.socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		got, err := l.socket.Read(buffer[held:])
		if err != nil {
			if err == io.EOF {
				return fmt.Errorf("closed by the server with %d requests in flight", open)
			}
			return err
		}
		held += got
		now = time.Now()
		used := 0
		for held-used >= 4 {
			size := int(binary.BigEndian.Uint32(buffer[used:]))
			if size < 4 || size > maxFrame {
				return fmt.Errorf("a frame of %d bytes", size)
			}
			if held-used < 4+size {
				if 4+size > len(buffer) {
					larger := make([]byte, 2*(4+size))
					copy(larger, buffer[used:held])
					buffer, held, used = larger, held-used, 0
				}
				break
			}
			at, err := l.answered(buffer[used+4:used+4+size], now)
			if err != nil {
				return err
			}
			used += 4 + size
			if now.Before(end) && (messages < 0 || l.messages+l.failures+int64(open) <= messages) {
				l.request(at, now)
			} else {
				open--
			}
		}
		held = copy(buffer, buffer[used:held])
		if err := l.flush(); err != nil {
			return err
		}
	}
	return nil
}

// request puts the next request of a slot into what leaves with the next write.
func (l *lane) request(at int, now time.Time) {
	slots := int32(len(l.slots))
	s := &l.slots[at]
	// Rounds are few enough for seven digits, and a request is long gone when its opaque comes again.
	s.round = (s.round + 1) % (8_000_000 / slots)
	opaque := firstOpaque(slots) + s.round*slots + int32(at)
	s.sent = now
	if l.settings.mode == "send" {
		l.out = l.templates[s.queue].appendTo(l.out, opaque, l.counter)
		l.counter++
		s.queue = (s.queue + 1) % l.settings.queues
		return
	}
	l.out = l.templates[s.queue].appendTo(l.out, opaque, s.offset)
}

func firstOpaque(slots int32) int32 {
	return (lowestOpaque + slots - 1) / slots * slots
}

func (l *lane) flush() error {
	if len(l.out) == 0 {
		return nil
	}
	_, err := l.socket.Write(l.out)
	l.out = l.out[:0]
	return err
}

// answered counts an answer and returns the slot that is free again.
func (l *lane) answered(frame []byte, now time.Time) (int, error) {
	got, err := parseAnswer(frame)
	if err != nil {
		return 0, err
	}
	slots := int32(len(l.slots))
	at := int(got.opaque % slots)
	s := &l.slots[at]
	if got.opaque != firstOpaque(slots)+s.round*slots+int32(at) {
		return 0, fmt.Errorf("an answer to request %d, which is not in flight", got.opaque)
	}
	l.requests++
	l.latencies.record(now.Sub(s.sent))
	switch {
	case l.settings.mode == "send" && got.code == success:
		l.messages++
	case l.settings.mode == "pull" && got.code == success:
		return at, l.pulled(s, &got)
	case l.settings.mode == "pull" && s.offset > 0 &&
		(got.code == pullNotFound || got.code == pullWithNoMatches || got.code == pullOffsetMoved):
		s.offset = 0 // the queue was read to its end: from the beginning again
	default:
		l.failures++
		if l.failure == "" {
			l.failure = got.complaint()
		}
	}
	return at, nil
}

func (l *lane) pulled(s *slot, got *answer) error {
	next, found := got.nextOffset()
	count := countRecords(got.body)
	if !found || count < 1 || next <= s.offset {
		return fmt.Errorf("a pull at %d gave %d messages and goes on at %d", s.offset, count, next)
	}
	l.messages += int64(count)
	s.offset = next
	return nil
}
