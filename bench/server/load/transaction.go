// A transaction: a half message, whose answer says where it lies, and the request that commits it.
package main

import (
	"fmt"
	"strconv"
)

// halfMessage is what it takes to end a transaction. Its number is that in its unique key.
type halfMessage struct {
	stored   bool
	number   int64
	physical int64
	queue    int64
}

const queuePlace = "555555555555"

func endTemplate(s settings, connection int, born int64) template {
	const commit = 8
	return newTemplate(s.headers, endTransaction, []field{
		{"topic", s.topic},
		{"producerGroup", s.group},
		{"tranStateTableOffset", queuePlace},
		{"commitLogOffset", offsetPlace},
		{"commitOrRollback", fmt.Sprint(commit)},
		{"fromTransactionCheck", "false"},
		{"msgId", keyOf(connection, born)},
		{"bname", s.broker},
	}, nil)
}

// read takes what the answer to a half message says.
func (h *halfMessage) read(got *answer) error {
	id, found := textAfter(got.header, `"msgId":"`)
	queue, too := numberAfter(got.header, `"queueOffset":`)
	if !found || !too || len(id) < 16 {
		return fmt.Errorf("an answer to a half message does not say where it lies: %q", got.header)
	}
	// The last 16 hexadecimal digits, whatever the kind of address before them.
	physical, err := strconv.ParseInt(id[len(id)-16:], 16, 64)
	if err != nil {
		return err
	}
	h.stored, h.physical, h.queue = true, physical, queue
	return nil
}

func (h *halfMessage) appendEnd(buffer []byte, t *template, opaque int32) []byte {
	start := len(buffer)
	buffer = t.appendTo(buffer, opaque, h.number)
	frame := buffer[start:]
	putDigits(frame[t.offset:t.offset+offsetDigits], h.physical, 10)
	putDigits(frame[t.queue:t.queue+offsetDigits], h.queue, 10)
	return buffer
}
