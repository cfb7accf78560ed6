package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net"
	"testing"
	"time"
)

func TestARecordBatchIsWhatKafkaStores(t *testing.T) {
	// One record "hi", a second after 1970. Another test is about the checksum.
	wanted := "0000000000000000" + "0000003a" + "ffffffff" + "02" + "CRC-----" + "0000" + "00000000" +
		"00000000000003e8" + "00000000000003e8" + "ffffffffffffffff" + "ffff" + "ffffffff" + "00000001" +
		"10" + "00" + "00" + "00" + "01" + "04" + "6869" + "00"
	got := hex.EncodeToString(recordBatch(1, []byte("hi"), 1000))
	if len(got) != len(wanted) || got[:34] != wanted[:34] || got[42:] != wanted[42:] {
		t.Errorf("\n%s instead of\n%s", got, wanted)
	}
}

func TestAChecksumIsCRC32C(t *testing.T) {
	batch := recordBatch(3, []byte("hello"), 1000)
	var slow uint32 = 0xFFFFFFFF
	for _, each := range batch[batchChecksum+4:] {
		slow ^= uint32(each)
		for bit := 0; bit < 8; bit++ {
			slow = slow>>1 ^ 0x82F63B78*(slow&1)
		}
	}
	if got := binary.BigEndian.Uint32(batch[batchChecksum:]); got != ^slow {
		t.Errorf("%08x instead of %08x", got, ^slow)
	}
}

func TestRecordsAreCountedByTheirBatchesAndACutOneIsLeft(t *testing.T) {
	first, second := recordBatch(3, content(10), 1000), recordBatch(2, content(10), 1000)
	binary.BigEndian.PutUint64(first, 40)
	binary.BigEndian.PutUint64(second, 43)
	both := append(append([]byte{}, first...), second...)
	for size, wanted := range map[int][2]int64{
		len(both): {5, 45}, len(both) - 1: {3, 43}, len(first) + 5: {3, 43}, len(first) - 1: {0, 0}, 0: {0, 0},
	} {
		count, next, err := countBatches(both[:size])
		if err != nil || [2]int64{count, next} != wanted {
			t.Errorf("%d bytes: %d records, next %d, %v", size, count, next, err)
		}
	}
	both[16] = 1
	if _, _, err := countBatches(both); err == nil {
		t.Error("records of another format were counted")
	}
}

func TestARequestToKafkaHasItsNumberAndItsOffset(t *testing.T) {
	fetch := fetchRequest("T", 5, 4096)
	frame := fetch.appendTo([]byte("before"), 77, 1234)[len("before"):]
	wanted := "0000003a" + "0001" + "0004" + "0000004d" + "0004" + hex.EncodeToString([]byte("load")) +
		"ffffffff" + "00000000" + "00000001" + "00001000" + "00" +
		"00000001" + "000154" + "00000001" + "00000005" + "00000000000004d2" + "00001000"
	if got := hex.EncodeToString(frame); got != wanted {
		t.Errorf("\n%s instead of\n%s", got, wanted)
	}
}

func TestAnAnswerThatEndsTooEarlyIsNoAnswer(t *testing.T) {
	whole := fetchAnswer(7, "T", 0, recordBatch(1, content(10), 1000))
	for size := range whole {
		answer := kafkaAnswer{rest: whole[:size]}
		answer.int32()
		if answer.fetched(); !answer.short {
			t.Fatalf("%d of %d bytes were taken for an answer", size, len(whole))
		}
	}
}

func TestMessagesThatKafkaAcceptsAndRefusesAreCounted(t *testing.T) {
	s := settings{mode: "send-batch", topic: "T", queues: 2, inFlight: 4, body: 10, batch: 32}
	answers := 0
	client := newKafkaWorker(s, 0, talkingTo(t, func(frame []byte) []byte {
		answers++
		return produceAnswer(binary.BigEndian.Uint32(frame[4:]), "T", int16(6*(answers%2)))
	}))
	if err := client.run(time.Now().Add(time.Minute), 320); err != nil {
		t.Fatal(err)
	}
	if client.messages != 160 || client.failures != 5 || client.failure != "error 6" || client.requests != 10 {
		t.Errorf("%d messages, %d failures: %q", client.messages, client.failures, client.failure)
	}
}

func TestAPartitionThatWasReadToItsEndIsReadAgain(t *testing.T) {
	s := settings{mode: "pull", topic: "T", queues: 1, inFlight: 1, body: 10, batch: 32}
	offsets := []uint64{}
	client := newKafkaWorker(s, 0, talkingTo(t, func(frame []byte) []byte {
		offset := binary.BigEndian.Uint64(frame[len(frame)-12:])
		offsets = append(offsets, offset)
		if offset > 0 {
			return fetchAnswer(binary.BigEndian.Uint32(frame[4:]), "T", 0, nil)
		}
		return fetchAnswer(binary.BigEndian.Uint32(frame[4:]), "T", 0, recordBatch(32, content(10), 1000))
	}))
	if err := client.run(time.Now().Add(time.Minute), 64); err != nil {
		t.Fatal(err)
	}
	if client.messages != 64 || len(offsets) != 3 || offsets[1] != 32 || offsets[2] != 0 {
		t.Errorf("%d messages, requested at %v", client.messages, offsets)
	}
}

func produceAnswer(number uint32, topic string, code int16) []byte {
	answer := appendPartition(appendUint32(nil, number), topic, 0)
	answer = binary.BigEndian.AppendUint16(answer, uint16(code))
	return append(answer, make([]byte, 8+8+4)...) // offset, time, how long it was held back
}

func fetchAnswer(number uint32, topic string, code int16, records []byte) []byte {
	answer := appendUint32(appendUint32(nil, number), 0)
	answer = appendPartition(answer, topic, 0)
	answer = binary.BigEndian.AppendUint16(answer, uint16(code))
	answer = appendUint32(append(answer, make([]byte, 8+8)...), 0xFFFFFFFF)
	return append(appendUint32(answer, uint32(len(records))), records...)
}

// talkingTo is a connection to a server that answers every frame; both come and go without their lengths.
func talkingTo(t *testing.T, answer func(frame []byte) []byte) net.Conn {
	here, there := tcpPair(t)
	go func() {
		var held bytes.Buffer
		buffer := make([]byte, 1<<16)
		for {
			got, err := there.Read(buffer)
			if err != nil {
				return
			}
			held.Write(buffer[:got])
			for held.Len() >= 4 && held.Len() >= 4+int(binary.BigEndian.Uint32(held.Bytes())) {
				frame := held.Next(4 + int(binary.BigEndian.Uint32(held.Bytes())))
				response := answer(frame[4:])
				if _, err := there.Write(append(appendUint32(nil, uint32(len(response))), response...)); err != nil {
					return
				}
			}
		}
	}()
	return here
}

// tcpPair is two ends of a connection that are closed with the test.
func tcpPair(t *testing.T) (net.Conn, net.Conn) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	here, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}
