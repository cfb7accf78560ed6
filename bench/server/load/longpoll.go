// Followers: connections that hold a pull for each of their queues and read what is sent meanwhile, with the time from
// a message's send to its arrival here. It lies in the first bytes of the body.
package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

const (
	// How long a server keeps a pull that finds nothing; what the Java client asks for.
	holdMs = 15_000
	// What was sent and has not come after so long is lost.
	lostAfter = 20 * time.Second
	stampSize = 8
)

// base is what stamps count from. It carries the monotonic clock.
var base = time.Now()

// stamp writes when a message was sent into its body, which ends the frame.
func stamp(frame []byte, body int, sent time.Time) {
	binary.BigEndian.PutUint64(frame[len(frame)-body:], uint64(sent.Sub(base)))
}

func stampOf(record []byte) (time.Time, bool) {
	body := bodyOf(record)
	if len(body) < stampSize {
		return time.Time{}, false
	}
	return base.Add(time.Duration(binary.BigEndian.Uint64(body))), true
}

// meeting is what senders and followers know of each other: when all has been sent, and when all has come.
type meeting struct {
	senders atomic.Int64
	sent    atomic.Int64
	came    atomic.Int64
	over    atomic.Bool
	sockets []net.Conn
}

// sender is a worker whose messages are followed.
type sender struct {
	worker
	meeting *meeting
	settle  time.Duration
}

func (s sender) run(end time.Time, messages int64) error {
	time.Sleep(s.settle)
	err := s.worker.run(end.Add(s.settle), messages)
	s.meeting.sent.Add(s.worker.found().messages)
	if s.meeting.senders.Add(-1) == 0 {
		s.meeting.end()
	}
	return err
}

// end waits for messages in flight and releases the followers, whose held pulls would never be answered.
func (m *meeting) end() {
	for deadline := time.Now().Add(lostAfter); m.came.Load() < m.sent.Load() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	m.over.Store(true)
	for _, each := range m.sockets {
		each.Close()
	}
}

// lost is how many messages never came.
func (m *meeting) lost() int64 { return max64(m.sent.Load()-m.came.Load(), 0) }

type follower struct {
	tally
	stream
	meeting   *meeting
	templates map[int]*template
	offsets   map[int]int64
	start     time.Time
}

// newFollower follows every queue whose number, divided by the number of followers, leaves this one's number.
func newFollower(s settings, number int, socket net.Conn, m *meeting) *follower {
	s.holdMs = holdMs
	made := &follower{
		stream: stream{socket: socket}, meeting: m, templates: map[int]*template{}, offsets: map[int]int64{},
	}
	made.series.step = s.seriesStep
	now := time.Now().UnixMilli()
	for queue := number; queue < s.queues; queue += s.followers {
		held := pullTemplate(s, queue, now)
		made.templates[queue], made.offsets[queue] = &held, s.offsets[queue]
	}
	return made
}

func (f *follower) found() *tally { return &f.tally }

func (f *follower) run(time.Time, int64) error {
	f.start = time.Now()
	for queue := range f.templates {
		f.pull(queue)
	}
	err := f.flush()
	for err == nil {
		err = f.read(f.answered)
	}
	if f.meeting.over.Load() {
		return nil
	}
	return err
}

func (f *follower) pull(queue int) {
	f.out = f.templates[queue].appendTo(f.out, lowestOpaque+int32(queue), f.offsets[queue])
}

func (f *follower) answered(frame []byte, now time.Time) error {
	got, err := parseAnswer(frame)
	if err != nil {
		return err
	}
	queue := int(got.opaque - lowestOpaque)
	if f.templates[queue] == nil {
		return fmt.Errorf("an answer to request %d, which is not in flight", got.opaque)
	}
	f.requests++
	switch got.code {
	case success:
		if err := f.take(queue, &got, now); err != nil {
			return err
		}
	case pullNotFound, pullWithNoMatches:
		// The long poll timed out, or the server woke it and found no message yet.
	case pullOffsetMoved:
		// The maximum offset counts stored messages; for a moment not all of them can be pulled.
		time.Sleep(time.Millisecond)
	default:
		f.failed(&got)
		time.Sleep(time.Millisecond) // back off while the server is busy
	}
	f.pull(queue)
	return nil
}

func (f *follower) take(queue int, got *answer, now time.Time) error {
	next, found := got.nextOffset()
	if !found || next <= f.offsets[queue] {
		return fmt.Errorf("a pull at %d goes on at %d", f.offsets[queue], next)
	}
	count, stamped := int64(0), true
	whole := eachRecord(got.body, func(record []byte) {
		sent, is := stampOf(record)
		stamped = stamped && is
		f.latencies.record(now.Sub(sent))
		f.series.record(sent.Sub(f.start), now.Sub(sent))
		count++
	})
	if !whole || !stamped || count == 0 {
		return fmt.Errorf("a pull at %d gave %d messages that are not those that were sent", f.offsets[queue], count)
	}
	f.offsets[queue] = next
	f.messages += count
	f.last = now
	f.meeting.came.Add(count)
	return nil
}
