// One connection to Kafka: Produce or Fetch requests, so many in flight; every answer makes room for the next one.
package main

import (
	"fmt"
	"net"
	"time"
)

// kafkaSlot is a place for one request in flight.
type kafkaSlot struct {
	sent   time.Time
	queue  int
	offset int64
	round  int32
}

type kafkaWorker struct {
	tally
	stream
	settings  settings
	templates []kafkaRequest
	slots     []kafkaSlot
	// requested is how many messages were sent, answered or not.
	requested int64
}

func connectKafka(s settings) ([]worker, *meeting, error) {
	var workers []worker
	for number := 0; number < s.connections; number++ {
		socket, err := net.Dial("tcp", s.address)
		if err != nil {
			return nil, nil, err
		}
		workers = append(workers, newKafkaWorker(s, number, socket))
	}
	return workers, nil, nil
}

func newKafkaWorker(s settings, number int, socket net.Conn) *kafkaWorker {
	made := &kafkaWorker{settings: s, stream: stream{socket: socket}, slots: make([]kafkaSlot, s.inFlight)}
	now := time.Now().UnixMilli()
	for queue := 0; queue < s.queues; queue++ {
		if s.sends() {
			made.templates = append(made.templates, produceRequest(s.topic, queue, recordBatch(int(s.perRequest()), content(s.body), now)))
		} else {
			made.templates = append(made.templates, fetchRequest(s.topic, queue, s.bytesOfFetch(now)))
		}
	}
	for at := range made.slots {
		made.slots[at].queue = (number + at) % s.queues
	}
	return made
}

// bytesOfFetch limits a Fetch to -fetch-bytes, or to as many messages as one pull asks for, stored one by one.
func (s settings) bytesOfFetch(now int64) int {
	if s.fetchBytes > 0 {
		return s.fetchBytes
	}
	return s.batch * len(recordBatch(1, content(s.body), now))
}

func (l *kafkaWorker) found() *tally { return &l.tally }

// run keeps the slots busy until the end, or until so many messages were requested, and waits for every answer.
func (l *kafkaWorker) run(end time.Time, messages int64) error {
	start := time.Now()
	open := 0
	for at := range l.slots {
		if messages >= 0 && l.counted() >= messages {
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
			at, err := l.answered(frame, now)
			if err != nil {
				return err
			}
			if now.Before(end) && (messages < 0 || l.counted() < messages) {
				l.request(at, now)
			} else {
				open--
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// counted is what a limit of messages is about: a request may carry several, and how many a Fetch brings is not known
// before.
func (l *kafkaWorker) counted() int64 {
	if l.settings.sends() {
		return l.requested
	}
	return l.messages
}

func (l *kafkaWorker) request(at int, now time.Time) {
	s := &l.slots[at]
	// A request is long gone when its number comes again.
	s.round = (s.round + 1) % (1 << 18)
	s.sent = now
	l.out = l.templates[s.queue].appendTo(l.out, l.numberOf(at), s.offset)
	if l.settings.sends() {
		l.requested += l.settings.perRequest()
		s.queue = (s.queue + 1) % l.settings.queues
	}
}

// numberOf is the number of the request that a slot has in flight.
func (l *kafkaWorker) numberOf(at int) int32 {
	return l.slots[at].round*int32(len(l.slots)) + int32(at)
}

// answered counts an answer and returns the slot that is free again.
func (l *kafkaWorker) answered(frame []byte, now time.Time) (int, error) {
	answer := kafkaAnswer{rest: frame}
	number := answer.int32()
	at := int(number) % len(l.slots)
	if number < 0 || number != l.numberOf(at) {
		return 0, fmt.Errorf("an answer to request %d, which is not in flight", number)
	}
	s := &l.slots[at]
	l.requests++
	l.last = now
	l.latencies.record(now.Sub(s.sent))
	var code int16
	if l.settings.sends() {
		code = answer.produced()
		if code == 0 && !answer.short {
			l.messages += l.settings.perRequest()
		}
	} else {
		var records []byte
		code, records = answer.fetched()
		if code == 0 && !answer.short {
			if err := l.pulled(s, records); err != nil {
				return 0, err
			}
		}
	}
	if answer.short {
		return 0, fmt.Errorf("an answer of %d bytes ends too early", len(frame))
	}
	if code != 0 {
		l.failures++
		if l.failure == "" {
			l.failure = fmt.Sprintf("error %d", code)
		}
	}
	return at, nil
}

func (l *kafkaWorker) pulled(s *kafkaSlot, records []byte) error {
	count, next, err := countBatches(records)
	switch {
	case err != nil:
		return err
	case count == 0 && s.offset == 0:
		return fmt.Errorf("nothing to fetch from partition %d", s.queue)
	case count == 0:
		s.offset = 0 // the partition was read to its end: from the beginning again
	case next <= s.offset:
		return fmt.Errorf("a fetch at %d gave %d messages and goes on at %d", s.offset, count, next)
	default:
		l.messages += count
		s.offset = next
	}
	return nil
}
