// Consumer offsets: commits that are answered, commits of which all but the last one of a request are one-way, as the
// Java client sends them, and queries.
package main

import (
	"bytes"
	"fmt"
)

const (
	queryConsumerOffset  = 14
	updateConsumerOffset = 15
)

// offsetModes are the modes of requests that read or change one offset, which have no messages.
var offsetModes = map[string]bool{"commit": true, "commit-oneway": true, "query-offset": true}

// offsetTemplate is for the group of a connection: no other one commits in its queues, so their offsets rise.
func offsetTemplate(s settings, connection, queue int) template {
	fields := []field{
		{"consumerGroup", fmt.Sprintf("%s-%d", s.group, connection)},
		{"topic", s.topic},
		{"queueId", fmt.Sprint(queue)},
		{"bname", s.broker},
	}
	if s.mode == "query-offset" {
		return newTemplate(s.headers, queryConsumerOffset, append(fields, field{"setZeroIfNotFound", "true"}), nil)
	}
	return newTemplate(s.headers, updateConsumerOffset, append(fields, field{"commitOffset", offsetPlace}), nil)
}

// oneway is the same request without an answer.
func (t template) oneway() template {
	t.frame = bytes.Replace(t.frame, []byte(`"flag":0`), []byte(`"flag":2`), 1)
	return t
}

// appendOffset puts the next request of a slot behind others: of some commits only the last one has an answer.
func (l *requestWorker) appendOffset(s *slot, opaque int32) {
	if l.settings.mode == "commit-oneway" {
		for count := 1; count < l.settings.batch; count++ {
			l.counter++
			l.out = l.oneways[s.queue].appendTo(l.out, opaque, l.counter)
		}
	}
	l.counter++
	l.out = l.templates[s.queue].appendTo(l.out, opaque, l.counter)
}
