// Sends of many messages in one request: a batch, as the Java client writes it.
package main

import (
	"bytes"
	"fmt"
)

const (
	sendBatchMessage = 320
	// Of a message in a batch: its size, magic, CRC (both left empty by clients), flag and the size of its body.
	batchItemHead = 20
)

// perRequest is how many messages one request sends, or how many offsets it commits.
func (s settings) perRequest() int64 {
	if s.mode == "send-batch" || s.mode == "commit-oneway" {
		return int64(s.batch)
	}
	return 1
}

func batchTemplate(s settings, connection, queue int, born int64) template {
	properties := "UNIQ_KEY\x01" + keyOf(connection, born) + "\x02WAIT\x01true\x02TAGS\x01TagA\x02"
	item := batchItem(content(s.body), properties)
	made := s.template(sendBatchMessage, []field{
		{"a", s.group},
		{"b", s.topic},
		{"c", "TBW102"},
		{"d", "4"},
		{"e", fmt.Sprint(queue)},
		{"f", "0"},
		{"g", fmt.Sprint(born)},
		{"h", "0"},
		{"i", "WAIT\x01true\x02"},
		{"j", "0"},
		{"k", "false"},
		{"m", "true"},
		{"n", s.broker},
	}, bytes.Repeat(item, s.batch))
	first := len(made.frame) - s.batch*len(item) + bytes.Index(item, []byte(keyPlace))
	for number := 0; number < s.batch; number++ {
		made.keys = append(made.keys, first+number*len(item))
	}
	made.queueID = placeOfQueue(made.frame, s.headers, queue)
	return made
}

func batchItem(body []byte, properties string) []byte {
	item := appendUint32(nil, uint32(batchItemHead+len(body)+2+len(properties)))
	item = append(item, make([]byte, batchItemHead-8)...)
	item = appendUint32(item, uint32(len(body)))
	item = append(item, body...)
	item = append(item, byte(len(properties)>>8), byte(len(properties)))
	return append(item, properties...)
}
