// One connection that sends at its times, whether or not the server has answered what was sent before: what a server
// does not answer in time is then seen as latency, and not as fewer sends.
package main

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

const (
	// Requests in flight at most. Who waits for room is late, and that counts as latency.
	steadyRoom = 1 << 16
	// Requests that leave in one write at most.
	steadyWrite = 256
	napForRoom  = 200 * time.Microsecond
)

type steadyWorker struct {
	tally
	stream
	settings  settings
	number    int
	templates []template
	// sent is when each request in flight was made, in nanoseconds after the start, by its opaque; 0 is free.
	sent    []atomic.Int64
	written atomic.Int64
	answers atomic.Int64
	over    atomic.Bool
	// start is when the sends of all connections begin.
	start time.Time
}

func newSteadyWorker(s settings, number int, socket net.Conn) *steadyWorker {
	made := &steadyWorker{settings: s, number: number, stream: stream{socket: socket}}
	made.sent = make([]atomic.Int64, steadyRoom)
	made.series.step = s.seriesStep
	now := time.Now().UnixMilli()
	for queue := 0; queue < s.queues; queue++ {
		made.templates = append(made.templates, sendTemplate(s, number, queue, now))
	}
	return made
}

func (l *steadyWorker) found() *tally { return &l.tally }

// run sends until the end and waits for every answer.
func (l *steadyWorker) run(end time.Time, messages int64) error {
	l.start = time.Now()
	reading := make(chan error, 1)
	go func() { reading <- l.readAll() }()
	err := l.sendAll(end, messages)
	for err == nil && l.answers.Load() < l.written.Load() {
		select {
		case err = <-reading:
			return err
		default:
			time.Sleep(napForRoom)
		}
	}
	// Nothing else ends a read that nothing answers any more.
	l.over.Store(true)
	l.socket.Close()
	if readError := <-reading; err == nil {
		err = readError
	}
	return err
}

func (l *steadyWorker) readAll() error {
	for {
		if err := l.read(l.answered); err != nil {
			if l.over.Load() {
				return nil
			}
			return err
		}
	}
}

// sendAll writes what is due, again and again. A request that became due while a write was held up by the server is
// late from when it was due; one that became due while this slept, from when it is written.
func (l *steadyWorker) sendAll(end time.Time, messages int64) error {
	gap := time.Duration(float64(l.settings.connections) / l.settings.rate * float64(time.Second))
	// Connections take turns, so that their sends do not come all at once.
	offset := gap * time.Duration(l.number) / time.Duration(l.settings.connections)
	var out []byte
	count, free := int64(0), l.start
	for messages < 0 || count < messages {
		due := l.start.Add(offset + gap*time.Duration(count))
		if !due.Before(end) {
			return nil
		}
		time.Sleep(time.Until(due))
		now := time.Now()
		out = out[:0]
		first := count
		for count-first < steadyWrite && (messages < 0 || count < messages) {
			due = l.start.Add(offset + gap*time.Duration(count))
			if due.After(now) || !due.Before(end) {
				break
			}
			made := now
			if due.Before(free) {
				made = due
			}
			for l.sent[count%steadyRoom].Load() != 0 {
				if time.Since(now) > patience {
					return fmt.Errorf("%d requests without an answer", steadyRoom)
				}
				time.Sleep(napForRoom)
			}
			out = l.put(out, count, made)
			count++
		}
		l.written.Add(count - first)
		if _, err := l.socket.Write(out); err != nil {
			return err
		}
		free = time.Now()
	}
	return nil
}

func (l *steadyWorker) put(out []byte, count int64, made time.Time) []byte {
	l.sent[count%steadyRoom].Store(max64(int64(made.Sub(l.start)), 1))
	queue := &l.templates[int(count+int64(l.number))%l.settings.queues]
	at := len(out)
	out = queue.appendTo(out, lowestOpaque+int32(count%steadyRoom), count)
	if l.settings.stamps() {
		stamp(out[at:], l.settings.body, made)
	}
	return out
}

func (l *steadyWorker) answered(frame []byte, now time.Time) error {
	got, err := parseAnswer(frame)
	if err != nil {
		return err
	}
	at := int(got.opaque) - lowestOpaque
	if at < 0 || at >= steadyRoom {
		return fmt.Errorf("an answer to request %d, which is not in flight", got.opaque)
	}
	made := time.Duration(l.sent[at].Swap(0))
	if made == 0 {
		return fmt.Errorf("an answer to request %d, which is not in flight", got.opaque)
	}
	l.requests++
	l.last = now
	latency := now.Sub(l.start) - made
	l.latencies.record(latency)
	l.series.record(made, latency)
	if got.code == success {
		l.messages++
	} else {
		l.failed(&got)
	}
	l.answers.Add(1)
	return nil
}
