// Which queues a connection sends to: all of them, or its share if there are many.
package main

import (
	"bytes"
	"fmt"
)

// Up to so many queues every connection sends to all of them. Of more, each has its own: connections that go through
// the same thousands of queues would meet at the same ones.
const fewQueues = 64

// topicOf is the name of one of several topics.
func (s settings) topicOf(number int) string {
	if s.topics == 1 {
		return s.topic
	}
	return fmt.Sprintf("%s-%02d", s.topic, number)
}

// spread is the requests of a connection, in the order in which it goes through its queues. A topic has a template for
// each length that the number of a queue has, and not one for each queue: those of 50,000 queues would not stay in the
// processor's cache, and the load would take longer for many queues than for few, whatever the server does.
type spread struct {
	templates           []template
	queues, digits      int
	first, step, within int
}

func newSpread(s settings, connection int, now int64) spread {
	total := s.topics * s.queues
	made := spread{queues: s.queues, digits: len(fmt.Sprint(s.queues - 1)), first: connection % total, step: 1, within: total}
	if total > fewQueues && total >= s.connections {
		made.first, made.step = connection, s.connections
		made.within = (total - connection + s.connections - 1) / s.connections
	}
	for topic := 0; topic < s.topics; topic++ {
		here := s
		here.topic = s.topicOf(topic)
		for queue, digits := 1, 1; digits <= made.digits; queue, digits = queue*10, digits+1 {
			if s.mode == "send-batch" {
				made.templates = append(made.templates, batchTemplate(here, connection, queue, now))
			} else {
				made.templates = append(made.templates, sendTemplate(here, connection, queue, now))
			}
		}
	}
	return made
}

// at is the topic and the queue of a request, by its number.
func (p *spread) at(number int64) (topic, queue int) {
	at := p.first + int(number%int64(p.within))*p.step
	if p.step == 1 {
		at %= p.within // connections begin with different queues
	}
	return at / p.queues, at % p.queues
}

// appendTo writes a request behind others; the template is that of the request.
func (p *spread) appendTo(buffer []byte, opaque int32, number int64) ([]byte, *template) {
	topic, queue := p.at(number)
	digits := 1
	for least := 10; queue >= least; least *= 10 {
		digits++
	}
	used := &p.templates[topic*p.digits+digits-1]
	start := len(buffer)
	buffer = used.appendTo(buffer, opaque, number)
	putDigits(buffer[start+used.queueID:start+used.queueID+digits], int64(queue), 10)
	return buffer, used
}

// placeOfQueue is where the number of a send's queue stands in a frame.
func placeOfQueue(frame []byte, headers string, queue int) int {
	text := fmt.Sprint(queue)
	before := []byte(`"e":"`)
	if shape := shapes[headers]; shape != nil {
		before = []byte(shape.queueBefore())
	} else if headers == "binary" {
		before = appendUint32([]byte("\x00\x01e"), uint32(len(text)))
	}
	return bytes.Index(frame, append(before, text...)) + len(before)
}
