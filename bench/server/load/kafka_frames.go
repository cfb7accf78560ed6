// Kafka's frames: Produce and Fetch in the oldest versions that Kafka 4 still takes, whose layout is fixed. No client
// has to ask for versions first, and there is no other handshake.
package main

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

const (
	kafkaProduce, kafkaProduceVersion = 0, 3
	kafkaFetch, kafkaFetchVersion     = 1, 4

	leaderAcknowledges = 1
	produceTimeoutMs   = 30_000

	// Of a record batch up to its first record.
	batchHead = 61
	// What a batch's own length leaves out: its first offset and the length.
	batchPrefix = 12
	// Where its checksum stands; it is over what follows.
	batchChecksum = 17
	batchMagic    = 2

	// Where a request has its number, behind length, kind and version.
	kafkaNumberPlace = 8
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errBatches = errors.New("the records of a fetch cannot be read")
)

// kafkaRequest is a frame with the places that each request writes over; offset is -1 if there is none.
type kafkaRequest struct {
	frame  []byte
	offset int
}

func (r *kafkaRequest) appendTo(buffer []byte, number int32, offset int64) []byte {
	start := len(buffer)
	buffer = append(buffer, r.frame...)
	binary.BigEndian.PutUint32(buffer[start+kafkaNumberPlace:], uint32(number))
	if r.offset >= 0 {
		binary.BigEndian.PutUint64(buffer[start+r.offset:], uint64(offset))
	}
	return buffer
}

// produceRequest puts a batch into one partition; the leader answers when it has it.
func produceRequest(topic string, partition int, batch []byte) kafkaRequest {
	frame := kafkaHeader(kafkaProduce, kafkaProduceVersion)
	frame = binary.BigEndian.AppendUint16(frame, 0xFFFF) // in no transaction
	frame = binary.BigEndian.AppendUint16(frame, leaderAcknowledges)
	frame = appendUint32(frame, produceTimeoutMs)
	frame = appendPartition(frame, topic, partition)
	frame = append(appendUint32(frame, uint32(len(batch))), batch...)
	return kafkaRequest{withLength(frame), -1}
}

// fetchRequest asks for what one partition has, up to so many bytes; it is answered at once, with nothing if need be.
func fetchRequest(topic string, partition, most int) kafkaRequest {
	frame := kafkaHeader(kafkaFetch, kafkaFetchVersion)
	frame = appendUint32(frame, 0xFFFFFFFF) // a consumer, and no replica
	frame = appendUint32(frame, 0)          // no waiting
	frame = appendUint32(frame, 1)          // bytes at least
	frame = appendUint32(frame, uint32(most))
	frame = append(frame, 0) // what no transaction has committed too
	frame = appendPartition(frame, topic, partition)
	place := len(frame)
	frame = binary.BigEndian.AppendUint64(frame, 0)
	frame = appendUint32(frame, uint32(most))
	return kafkaRequest{withLength(frame), place}
}

// kafkaHeader leaves room for the length and the number.
func kafkaHeader(kind, version uint16) []byte {
	const client = "load"
	frame := binary.BigEndian.AppendUint16(make([]byte, 4), kind)
	frame = binary.BigEndian.AppendUint16(frame, version)
	frame = appendUint32(frame, 0)
	return append(binary.BigEndian.AppendUint16(frame, uint16(len(client))), client...)
}

func withLength(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// appendPartition begins lists of one topic and of one partition.
func appendPartition(frame []byte, topic string, partition int) []byte {
	frame = appendUint32(frame, 1)
	frame = append(binary.BigEndian.AppendUint16(frame, uint16(len(topic))), topic...)
	return appendUint32(appendUint32(frame, 1), uint32(partition))
}

// recordBatch holds so many records with this value, which have neither keys nor headers, all of the same time.
func recordBatch(count int, value []byte, timestamp int64) []byte {
	var records []byte
	for number := 0; number < count; number++ {
		record := []byte{0}                                     // attributes
		record = binary.AppendVarint(record, 0)                 // milliseconds after the first
		record = binary.AppendVarint(record, int64(number))     // offset after the first
		record = binary.AppendVarint(record, -1)                // no key
		record = binary.AppendVarint(record, int64(len(value))) // Go's signed varints are Kafka's
		record = append(record, value...)
		record = binary.AppendVarint(record, 0) // headers
		records = append(binary.AppendVarint(records, int64(len(record))), record...)
	}
	batch := binary.BigEndian.AppendUint64(make([]byte, 0, batchHead+len(records)), 0)
	batch = appendUint32(batch, uint32(batchHead-batchPrefix+len(records)))
	batch = appendUint32(batch, 0xFFFFFFFF) // the leader's epoch is the broker's to fill in
	batch = append(batch, batchMagic)
	batch = appendUint32(batch, 0)                  // checksum
	batch = binary.BigEndian.AppendUint16(batch, 0) // not compressed
	batch = appendUint32(batch, uint32(count-1))    // the last record's offset after the first
	batch = binary.BigEndian.AppendUint64(batch, uint64(timestamp))
	batch = binary.BigEndian.AppendUint64(batch, uint64(timestamp))
	batch = binary.BigEndian.AppendUint64(batch, ^uint64(0)) // no idempotent producer: number, epoch, sequence
	batch = binary.BigEndian.AppendUint16(batch, 0xFFFF)
	batch = appendUint32(batch, 0xFFFFFFFF)
	batch = append(appendUint32(batch, uint32(count)), records...)
	binary.BigEndian.PutUint32(batch[batchChecksum:], crc32.Checksum(batch[batchChecksum+4:], castagnoli))
	return batch
}

// countBatches is how many records a fetch gave and where the next begins. A limit of bytes may cut the last batch
// short; it comes again.
func countBatches(records []byte) (count, next int64, err error) {
	for len(records) >= batchHead {
		size := batchPrefix + int(int32(binary.BigEndian.Uint32(records[8:])))
		if size < batchHead || records[16] != batchMagic {
			return 0, 0, errBatches
		}
		if size > len(records) {
			break
		}
		count += int64(binary.BigEndian.Uint32(records[57:]))
		next = int64(binary.BigEndian.Uint64(records)) + int64(binary.BigEndian.Uint32(records[23:])) + 1
		records = records[size:]
	}
	return count, next, nil
}

// kafkaAnswer is read from its beginning to its end; short says that it ended before.
type kafkaAnswer struct {
	rest  []byte
	short bool
}

func (a *kafkaAnswer) take(size int) []byte {
	if size < 0 || size > len(a.rest) {
		a.short, a.rest = true, nil
		return nil
	}
	taken := a.rest[:size]
	a.rest = a.rest[size:]
	return taken
}

func (a *kafkaAnswer) int16() int16 {
	if taken := a.take(2); taken != nil {
		return int16(binary.BigEndian.Uint16(taken))
	}
	return 0
}

func (a *kafkaAnswer) int32() int32 {
	if taken := a.take(4); taken != nil {
		return int32(binary.BigEndian.Uint32(taken))
	}
	return 0
}

// partition advances to the one requested partition.
func (a *kafkaAnswer) partition() {
	if a.int32() != 1 {
		a.short = true
	}
	a.take(int(a.int16()))
	if a.int32() != 1 {
		a.short = true
	}
	a.int32()
}

// produced is the error of a Produce, 0 if there is none.
func (a *kafkaAnswer) produced() int16 {
	a.partition()
	return a.int16()
}

// fetched is the error of a Fetch and the record batches that it gave.
func (a *kafkaAnswer) fetched() (int16, []byte) {
	const offsets, aborted = 8 + 8, 8 + 8
	a.int32() // how long it was held back
	a.partition()
	code := a.int16()
	a.take(offsets)
	for left := a.int32(); left > 0 && !a.short; left-- {
		a.take(aborted)
	}
	size := a.int32()
	if size < 0 {
		size = 0 // none at all
	}
	return code, a.take(int(size))
}
