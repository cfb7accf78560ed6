// One connection: every answer makes room for the next request, and what can be sent leaves in one write.
package main

import (
	"fmt"
	"net"
	"time"
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
	// half is the half message that a transaction has to end, if there is one.
	half halfMessage
}

type requestWorker struct {
	tally
	stream
	settings  settings
	number    int
	sending   spread
	templates []template
	oneways   []template
	ending    template
	slots     []slot
	counter   int64
}

func newRequestWorker(s settings, number int, socket net.Conn) *requestWorker {
	made := &requestWorker{settings: s, number: number, stream: stream{socket: socket}, slots: make([]slot, s.inFlight)}
	now := time.Now().UnixMilli()
	if s.sends() {
		made.sending = newSpread(s, number, now)
	}
	for queue := 0; queue < s.queues && !s.sends(); queue++ {
		if offsetModes[s.mode] {
			made.templates = append(made.templates, offsetTemplate(s, number, queue))
			made.oneways = append(made.oneways, made.templates[queue].oneway())
		} else {
			made.templates = append(made.templates, pullTemplate(s, queue, now))
		}
	}
	if s.mode == "transaction" {
		made.ending = endTemplate(s, number, now)
	}
	for at := range made.slots {
		made.slots[at].queue = (number + at) % s.queues
		if s.mode == "drain" {
			made.slots[at].queue = at
		}
		if len(s.offsets) > 0 {
			made.slots[at].offset = s.offsets[made.slots[at].queue]
		}
	}
	return made
}

func (l *requestWorker) found() *tally { return &l.tally }

// run keeps the slots busy until the end, or until the requested number of messages, and waits for every answer.
func (l *requestWorker) run(end time.Time, messages int64) error {
	start := time.Now()
	perRequest := l.settings.perRequest()
	open := 0
	for at := range l.slots {
		if messages >= 0 && int64(open+1)*perRequest > messages {
			break
		}
		l.request(at, start)
		open++
	}
	if err := l.flush(); err != nil {
		return err
	}
	for open > 0 {
		err := l.read(func(frame []byte, now time.Time) error {
			at, then, err := l.answered(frame, now)
			if err != nil {
				return err
			}
			mayAsk := now.Before(end) && (messages < 0 || l.messages+(l.failures+int64(open))*perRequest <= messages)
			if then == stepOn || then == askAgain && mayAsk {
				l.request(at, now)
			} else {
				open--
			}
			return nil
		})
		if err != nil {
			return err
		}
		l.keepPace(start)
	}
	return nil
}

// keepPace waits if this connection is ahead of its share of the requested rate.
func (l *requestWorker) keepPace(start time.Time) {
	if l.settings.rate <= 0 {
		return
	}
	seconds := float64(l.messages) * float64(l.settings.connections) / l.settings.rate
	time.Sleep(time.Until(start.Add(time.Duration(seconds * float64(time.Second)))))
}

// request puts the next request of a slot into what leaves with the next write.
func (l *requestWorker) request(at int, now time.Time) {
	slots := int32(len(l.slots))
	s := &l.slots[at]
	// Rounds are few enough for seven digits, and a request is long gone when its opaque comes again.
	s.round = (s.round + 1) % (8_000_000 / slots)
	opaque := firstOpaque(slots) + s.round*slots + int32(at)
	switch {
	case s.half.stored:
		l.out = s.half.appendEnd(l.out, &l.ending, opaque)
	case l.settings.sends():
		s.sent = now
		start := len(l.out)
		var used *template
		l.out, used = l.sending.appendTo(l.out, opaque, l.counter)
		used.setTimes(l.out[start:], now.UnixMilli(), l.settings.dueOf(l.counter))
		if l.settings.tagEvery > 1 {
			// Each queue has its share: messages go through the queues in turn.
			used.setTag(l.out[start:], l.counter/int64(l.settings.queues), l.settings.tagEvery)
		}
		if l.settings.stamps() {
			stamp(l.out[start:], l.settings.body, now)
		}
		used.sign(l.out[start:])
		s.half.number = l.counter
		l.counter++
	case offsetModes[l.settings.mode]:
		s.sent = now
		l.appendOffset(s, opaque)
	default:
		s.sent = now
		start := len(l.out)
		l.out = l.templates[s.queue].appendTo(l.out, opaque, s.offset)
		l.templates[s.queue].sign(l.out[start:])
	}
}

func firstOpaque(slots int32) int32 {
	return (lowestOpaque + slots - 1) / slots * slots
}

// next is how a slot goes on after an answer.
type next int

const (
	askAgain next = iota
	// stepOn is for what was begun and has to be ended.
	stepOn
	stop
)

// answered counts an answer and returns the slot that is free again.
func (l *requestWorker) answered(frame []byte, now time.Time) (int, next, error) {
	got, err := parseAnswer(frame)
	if err != nil {
		return 0, stop, err
	}
	slots := int32(len(l.slots))
	at := int(got.opaque % slots)
	s := &l.slots[at]
	if got.opaque != firstOpaque(slots)+s.round*slots+int32(at) {
		return 0, stop, fmt.Errorf("an answer to request %d, which is not in flight", got.opaque)
	}
	l.requests++
	l.last = now
	if l.settings.mode == "transaction" && got.code == success && !s.half.stored {
		return at, stepOn, s.half.read(&got)
	}
	s.half.stored = false
	l.latencies.record(now.Sub(s.sent))
	switch {
	case (l.settings.sends() || offsetModes[l.settings.mode]) && got.code == success:
		l.messages += l.settings.perRequest()
	case !l.settings.sends() && got.code == success:
		return at, askAgain, l.pulled(s, &got)
	case l.settings.mode == "drain" && got.code == pullNotFound:
		return at, stop, nil
	case l.settings.mode == "pull" && s.offset > l.first(s) &&
		(got.code == pullNotFound || got.code == pullWithNoMatches || got.code == pullOffsetMoved):
		s.offset = l.first(s) // the queue was read to its end: from the beginning again
	default:
		l.failed(&got)
	}
	return at, askAgain, nil
}

// first is where a slot begins to read.
func (l *requestWorker) first(s *slot) int64 {
	if len(l.settings.offsets) == 0 {
		return 0
	}
	return l.settings.offsets[s.queue]
}

func (l *requestWorker) pulled(s *slot, got *answer) error {
	next, found := got.nextOffset()
	count := countRecords(got.body)
	if !found || count < 1 || next <= s.offset {
		return fmt.Errorf("a pull at %d gave %d messages and goes on at %d", s.offset, count, next)
	}
	if l.settings.mode == "drain" {
		eachRecord(got.body, func(record []byte) {
			due := l.settings.dueFrom
			if due == 0 {
				due = bornAt(record) + l.settings.delayMs
			}
			l.came(due, storedAt(record))
		})
	}
	l.messages += int64(count)
	s.offset = next
	return nil
}
