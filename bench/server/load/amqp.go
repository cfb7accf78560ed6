// One connection to RabbitMQ: it publishes with confirms, so many unconfirmed, or consumes and acknowledges.
package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"
)

// Tags of unconfirmed messages lie within so many of each other: confirms need not come in order, and a message that
// is overtaken by more than this holds up the next.
const amqpRoom = 2 * maxInFlight

type amqpWorker struct {
	tally
	amqpStream
	settings settings
	// messages for each queue, as frames; or the queues that are consumed.
	templates [][]byte
	queues    []string
	// Publishing: when each unconfirmed message was sent, by its tag, in nanoseconds after the start; 0 is free.
	sent   [amqpRoom]int64
	start  time.Time
	lowest uint64
	next   uint64
	open   int
	queue  int
	// Consuming: what lies in the queues at the beginning, what of the current message is still to come, its tag, that
	// of the last that came whole, and how many of those are not acknowledged yet.
	waiting int64
	missing uint64
	tag     uint64
	whole   uint64
	unacked int
	closed  bool
}

func connectAMQP(s settings) ([]worker, *meeting, error) {
	var workers []worker
	for number := 0; number < s.connections; number++ {
		socket, err := net.Dial("tcp", s.address)
		if err != nil {
			return nil, nil, err
		}
		made := &amqpWorker{settings: s, lowest: 1, next: 1, queue: number % s.queues}
		made.socket = socket
		if err := made.prepare(number); err != nil {
			return nil, nil, fmt.Errorf("connection %d: %w", number, err)
		}
		workers = append(workers, made)
	}
	return workers, nil, nil
}

// prepare opens a channel and makes the queues. Those that are sent to are emptied first: long queues are another
// matter than sending.
func (l *amqpWorker) prepare(number int) error {
	s := l.settings
	if err := l.handshake(); err != nil {
		return err
	}
	for queue := 0; queue < s.queues; queue++ {
		name := fmt.Sprintf("%s-%d", s.topic, queue)
		waiting, err := l.declare(name)
		if err != nil {
			return err
		}
		switch {
		case !s.sends() && queue%s.connections == number:
			l.queues = append(l.queues, name)
			l.waiting += int64(waiting)
		case s.sends():
			l.templates = append(l.templates, publishFrames(name, content(s.body), s.persistent))
			if number == 0 {
				if _, err := l.call(queuePurge(name), amqpQueue, 31); err != nil {
					return err
				}
			}
		}
	}
	if s.sends() {
		_, err := l.call(confirmSelect(), amqpConfirm, 11)
		return err
	}
	_, err := l.call(basicQos(s.inFlight*s.batch), amqpBasic, 11)
	return err
}

func (l *amqpWorker) found() *tally { return &l.tally }

func (l *amqpWorker) run(end time.Time, messages int64) error {
	if l.settings.sends() {
		return l.publish(end, messages)
	}
	return l.consume(end, messages)
}

// publish keeps messages unconfirmed until the end, or until there were so many, and waits for every confirm.
func (l *amqpWorker) publish(end time.Time, messages int64) error {
	l.start = time.Now()
	now := l.start
	for {
		for l.open < l.settings.inFlight && l.next-l.lowest < amqpRoom && now.Before(end) &&
			(messages < 0 || int64(l.next) <= messages) {
			l.put(now)
		}
		if err := l.flush(); err != nil {
			return err
		}
		if l.open == 0 {
			return nil
		}
		if err := l.readFrames(l.confirmed); err != nil {
			return err
		}
		now = time.Now()
	}
}

func (l *amqpWorker) put(now time.Time) {
	l.sent[l.next%amqpRoom] = max64(int64(now.Sub(l.start)), 1)
	l.out = append(l.out, l.templates[l.queue]...)
	l.queue = (l.queue + 1) % len(l.templates)
	l.next++
	l.open++
}

func (l *amqpWorker) confirmed(kind byte, payload []byte, now time.Time) error {
	class, method, arguments, err := methodOf(kind, payload)
	if err != nil || kind == amqpHeartbeat {
		return err
	}
	if class != amqpBasic || method != basicAckID && method != basicNackID || len(arguments) < 9 {
		return complaint(class, method, arguments)
	}
	l.requests++
	tag := binary.BigEndian.Uint64(arguments)
	first := tag
	if multiple := arguments[8]&1 != 0; multiple {
		first = l.lowest
	}
	if tag >= l.next || tag < l.lowest {
		return fmt.Errorf("message %d was confirmed, which is not in flight", tag)
	}
	for each := first; each <= tag; each++ {
		sent := &l.sent[each%amqpRoom]
		if *sent == 0 {
			continue // by itself, before
		}
		l.latencies.record(now.Sub(l.start) - time.Duration(*sent))
		*sent = 0
		l.open--
		if method == basicAckID {
			l.messages++
			l.last = now
			continue
		}
		l.failures++
		if l.failure == "" {
			l.failure = "a message was not taken"
		}
	}
	for l.lowest < l.next && l.sent[l.lowest%amqpRoom] == 0 {
		l.lowest++
	}
	return nil
}

// consume takes what lay in the queues at the beginning, or as much as comes until the end, and acknowledges all.
func (l *amqpWorker) consume(end time.Time, messages int64) error {
	if messages >= 0 && messages < l.waiting {
		l.waiting = messages
	}
	for _, queue := range l.queues {
		l.out = append(l.out, basicConsume(queue)...)
	}
	if err := l.flush(); err != nil {
		return err
	}
	for now := time.Now(); l.messages < l.waiting && now.Before(end); now = time.Now() {
		if err := l.readFrames(l.delivered); err != nil {
			return err
		}
	}
	l.waiting = l.messages // what still comes goes back into its queue
	if l.unacked > 0 {
		l.acknowledge()
	}
	// The answer to this says that the acknowledgements before it were read.
	l.out = append(l.out, channelClose()...)
	if err := l.flush(); err != nil {
		return err
	}
	for !l.closed {
		if err := l.readFrames(l.delivered); err != nil {
			return err
		}
	}
	return nil
}

func (l *amqpWorker) delivered(kind byte, payload []byte, now time.Time) error {
	switch kind {
	case amqpHeader:
		if len(payload) < 12 {
			return errAMQPFrame
		}
		l.missing = binary.BigEndian.Uint64(payload[4:])
	case amqpBody:
		if uint64(len(payload)) > l.missing {
			return errAMQPFrame
		}
		l.missing -= uint64(len(payload))
		if l.missing == 0 {
			l.received(now)
		}
	case amqpMethod:
		class, method, arguments, err := methodOf(kind, payload)
		if err != nil {
			return err
		}
		switch {
		case class == amqpBasic && method == basicDeliverID && len(arguments) >= 9 && len(arguments) >= 9+int(arguments[0]):
			l.tag = binary.BigEndian.Uint64(arguments[1+int(arguments[0]):])
		case class == amqpChannel && method == channelCloseOkID:
			l.closed = true
		default:
			return complaint(class, method, arguments)
		}
	}
	return nil
}

// received counts a message that came whole, if it is still wanted.
func (l *amqpWorker) received(now time.Time) {
	if l.messages >= l.waiting {
		return
	}
	l.messages++
	l.last = now
	l.whole = l.tag
	l.unacked++
	if l.unacked == l.settings.batch {
		l.acknowledge()
	}
}

func (l *amqpWorker) acknowledge() {
	l.out = append(l.out, basicAck(l.whole)...)
	l.requests++
	l.unacked = 0
}
