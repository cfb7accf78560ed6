// Which queues a connection sends to: all of them, or its share if there are many.
package main

import "fmt"

// Up to so many queues every connection sends to all of them. Of more, each has its own: the requests of all queues
// on all connections would take longer to make than a round takes.
const fewQueues = 64

// topicOf is the name of one of several topics.
func (s settings) topicOf(number int) string {
	if s.topics == 1 {
		return s.topic
	}
	return fmt.Sprintf("%s-%d", s.topic, number)
}

// sendTemplates are a connection's requests, one for each queue that it sends to, in the order it goes through them.
func sendTemplates(s settings, connection int, now int64) []template {
	var made []template
	first, step := connection, 1
	total := s.topics * s.queues
	if total > fewQueues && total >= s.connections {
		step = s.connections
	}
	for count := 0; count*step < total; count++ {
		at := first + count*step
		if step == 1 {
			at %= total // connections begin with different queues
		} else if at >= total {
			break
		}
		here := s
		here.topic = s.topicOf(at / s.queues)
		if s.mode == "send-batch" {
			made = append(made, batchTemplate(here, connection, at%s.queues, now))
		} else {
			made = append(made, sendTemplate(here, connection, at%s.queues, now))
		}
	}
	return made
}
