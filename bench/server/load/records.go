// Stored messages as they lie in the body of an answer, one behind the other.
package main

import "encoding/binary"

const (
	magicV1, magicV2 = 0xDAA320A7, 0xDAA320AB
	// Of a record up to and with its store time, in IPv4.
	recordHead = 64
)

// countRecords walks stored messages by their sizes; -1 if they do not fill the body.
func countRecords(body []byte) int {
	count := 0
	if !eachRecord(body, func([]byte) { count++ }) {
		return -1
	}
	return count
}

// eachRecord hands over the records of a body; false if they do not fill it.
func eachRecord(body []byte, handle func(record []byte)) bool {
	for len(body) > 0 {
		if len(body) < recordHead {
			return false
		}
		size := int(binary.BigEndian.Uint32(body))
		magic := binary.BigEndian.Uint32(body[4:])
		if size < recordHead || size > len(body) || magic != magicV1 && magic != magicV2 {
			return false
		}
		handle(body[:size])
		body = body[size:]
	}
	return true
}

func queueOf(record []byte) int       { return int(binary.BigEndian.Uint32(record[12:])) }
func queueOffset(record []byte) int64 { return int64(binary.BigEndian.Uint64(record[20:])) }
func bornAt(record []byte) int64      { return int64(binary.BigEndian.Uint64(record[40:])) }

func storedAt(record []byte) int64 {
	const hostV6, at, more = 0x10, 56, 12
	if binary.BigEndian.Uint32(record[36:])&hostV6 != 0 {
		return int64(binary.BigEndian.Uint64(record[at+more:]))
	}
	return int64(binary.BigEndian.Uint64(record[at:]))
}

// bodyOf is a record's body; nothing if the record is too short to have one.
func bodyOf(record []byte) []byte {
	const bornV6, hostV6, at, more = 0x10, 0x20, 84, 12
	start := at
	flags := binary.BigEndian.Uint32(record[36:])
	if flags&bornV6 != 0 {
		start += more
	}
	if flags&hostV6 != 0 {
		start += more
	}
	if start+4 > len(record) {
		return nil
	}
	size := int(binary.BigEndian.Uint32(record[start:]))
	if size < 0 || start+4+size > len(record) {
		return nil
	}
	return record[start+4 : start+4+size]
}
