package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestAMessageIsPublishedInThreeFrames(t *testing.T) {
	wanted := "01" + "0001" + "0000000a" + "003c0028" + "0000" + "00" + "0151" + "00" + "ce" +
		"02" + "0001" + "0000000f" + "003c0000" + "0000000000000002" + "1000" + "02" + "ce" +
		"03" + "0001" + "00000002" + "6869" + "ce"
	if got := hex.EncodeToString(publishFrames("Q", []byte("hi"), true)); got != wanted {
		t.Errorf("\n%s instead of\n%s", got, wanted)
	}
	transient := publishFrames("Q", []byte("hi"), false)
	if got := hex.EncodeToString(transient); strings.Replace(wanted, "100002ce", "100001ce", 1) != got {
		t.Errorf("transient: %s", got)
	}
}

func TestConfirmsComeOneByOneOrTogetherAndInAnyOrder(t *testing.T) {
	here, there := tcpPair(t)
	client := &amqpWorker{settings: settings{mode: "send", inFlight: 4}, lowest: 1, next: 1}
	client.socket = here
	client.templates = [][]byte{publishFrames("Q-0", content(10), true), publishFrames("Q-1", content(10), true)}
	done := make(chan error, 1)
	go func() { done <- client.publish(time.Now().Add(time.Minute), 6) }()
	takeMessages(t, there, 4)
	confirm(t, there, basicAckID, 3, false)
	takeMessages(t, there, 1)
	confirm(t, there, basicAckID, 4, true) // 1, 2 and 4: that of 3 was before
	takeMessages(t, there, 1)
	confirm(t, there, basicNackID, 6, true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if client.messages != 4 || client.failures != 2 || client.failure == "" || client.latencies.total != 6 {
		t.Errorf("%d messages, %d failures", client.messages, client.failures)
	}
}

func TestAServerThatTakesNoMessagesIsQuoted(t *testing.T) {
	arguments := shortText(nil, "low on memory")
	if err := complaint(amqpConnection, connectionBlockedID, arguments); !strings.Contains(err.Error(), "low on memory") {
		t.Error(err)
	}
	arguments = append(shortText([]byte{1, 0x94}, "NOT_FOUND - no queue"), 0, 50, 0, 10)
	if err := complaint(amqpChannel, channelCloseID, arguments); !strings.Contains(err.Error(), "no queue") {
		t.Error(err)
	}
	if err := complaint(amqpChannel, channelCloseID, []byte{1, 2, 9}); err == nil {
		t.Error("a truncated reason must be reported as an error")
	}
}

func TestWhatIsConsumedIsAcknowledgedInBatchesAndAtTheEnd(t *testing.T) {
	here, there := tcpPair(t)
	client := &amqpWorker{settings: settings{mode: "pull", inFlight: 2, batch: 3}, queues: []string{"Q"}, waiting: 5}
	client.socket = here
	done := make(chan error, 1)
	go func() { done <- client.consume(time.Now().Add(time.Minute), -1) }()
	takeFrames(t, there, 1)
	for tag := uint64(1); tag <= 6; tag++ { // one more than there were at the beginning
		deliver(t, there, tag, []byte("a body in two frames"))
	}
	acks := takeFrames(t, there, 3)
	for number, wanted := range []uint64{3, 5} {
		if got := binary.BigEndian.Uint64(acks[number][4:]); got != wanted || acks[number][12] != 1 {
			t.Errorf("acknowledged up to %d, not %d", got, wanted)
		}
	}
	if !bytes.HasPrefix(acks[2], []byte{0, amqpChannel, 0, channelCloseID}) {
		t.Errorf("%x", acks[2])
	}
	write(t, there, methodFrame(onChannel, amqpChannel, channelCloseOkID, nil))
	if err := <-done; err != nil || client.messages != 5 {
		t.Errorf("%d messages, %v", client.messages, err)
	}
}

func confirm(t *testing.T, to net.Conn, method uint16, tag uint64, multiple bool) {
	arguments := append(binary.BigEndian.AppendUint64(nil, tag), 0)
	if multiple {
		arguments[8] = 1
	}
	write(t, to, methodFrame(onChannel, amqpBasic, method, arguments))
}

func deliver(t *testing.T, to net.Conn, tag uint64, body []byte) {
	arguments := binary.BigEndian.AppendUint64(shortText(nil, "Q"), tag)
	arguments = shortText(shortText(append(arguments, 0), ""), "Q")
	header := make([]byte, 14)
	header[1] = amqpBasic
	binary.BigEndian.PutUint64(header[4:], uint64(len(body)))
	write(t, to, methodFrame(onChannel, amqpBasic, basicDeliverID, arguments))
	write(t, to, amqpFrame(amqpHeader, onChannel, header))
	write(t, to, amqpFrame(amqpBody, onChannel, body[:5]))
	write(t, to, amqpFrame(amqpBody, onChannel, body[5:]))
}

func write(t *testing.T, to net.Conn, frame []byte) {
	if _, err := to.Write(frame); err != nil {
		t.Error(err)
	}
}

func takeMessages(t *testing.T, from net.Conn, count int) { takeFrames(t, from, 3*count) }

// takeFrames is what so many frames carry.
func takeFrames(t *testing.T, from net.Conn, count int) [][]byte {
	var taken [][]byte
	for ; count > 0; count-- {
		head := make([]byte, amqpHead)
		if _, err := io.ReadFull(from, head); err != nil {
			t.Fatal(err)
		}
		payload := make([]byte, int(binary.BigEndian.Uint32(head[3:]))+amqpTail)
		if _, err := io.ReadFull(from, payload); err != nil {
			t.Fatal(err)
		}
		taken = append(taken, payload[:len(payload)-amqpTail])
	}
	return taken
}
