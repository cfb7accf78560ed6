// Requests as the Java client 5.5.0 writes them, encoded once: what differs between two of them has a fixed
// width and is written over in place.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
)

const (
	sendMessageV2  = 310
	pullMessage    = 11
	endTransaction = 37
	clientVersion  = 513
	languageJava   = 0
	languageInJSON = "JAVA"
	binaryHeader   = 1

	// Seven digits, whatever the request, so that a JSON header keeps its length. The slot of a request is its
	// opaque modulo the number of slots, hence the rounding in opaques.
	lowestOpaque = 1_000_000
	maxInFlight  = 4096
	opaqueDigits = 7

	// Of a unique key's 32 hexadecimal digits the last 12 count up; the others name this process and connection.
	countedDigits = 12
	offsetDigits  = 12
	// Milliseconds since 1970, until the year 2286.
	timeDigits = 13
)

// field is an extension field; they stay in the order the Java client has them.
type field struct{ name, value string }

// template is a frame with the places that each request writes over; a place that is not there is -1.
type template struct {
	frame  []byte
	binary bool
	opaque int
	key    int
	offset int
	born   int
	due    int
	queue  int
	tag    int
	// queueID is the number of a send's queue, which has the digits that it was made with.
	queueID int
	// keys are those of the messages in a batch.
	keys []int
	// signature is nil without credentials.
	signature *signature
}

// A place holder has the width of what replaces it and appears nowhere else.
var (
	opaquePlace = strings.Repeat("7", opaqueDigits)
	keyPlace    = strings.Repeat("F", countedDigits)
	offsetPlace = strings.Repeat("8", offsetDigits)
	bornPlace   = strings.Repeat("9", timeDigits)
	tagPlace    = "TagA"
	duePlace    = strings.Repeat("6", timeDigits)
)

func sendTemplate(s settings, connection, queue int, born int64) template {
	properties := "UNIQ_KEY\x01" + keyOf(connection, born) + "\x02WAIT\x01true\x02TAGS\x01" + tagPlace + "\x02"
	bornText, sysFlag := fmt.Sprint(born), 0
	switch {
	case s.mode == "transaction":
		const prepared = 4
		sysFlag = prepared
		properties += "TRAN_MSG\x01true\x02PGROUP\x01" + s.group + "\x02"
	case s.dueFrom > 0:
		properties += "TIMER_DELIVER_MS\x01" + duePlace + "\x02"
	case s.delayLevel > 0:
		// The lateness is computed from the time of birth.
		bornText = bornPlace
		properties += fmt.Sprintf("DELAY\x01%d\x02", s.delayLevel)
	}
	if shape := shapes[s.headers]; shape != nil && !shape.uniqueKey {
		properties = "TAGS\x01" + tagPlace + "\x02"
	}
	made := s.template(sendMessageV2, []field{
		{"a", s.group},
		{"b", s.topic},
		{"c", "TBW102"},
		{"d", "4"},
		{"e", fmt.Sprint(queue)},
		{"f", fmt.Sprint(sysFlag)},
		{"g", bornText},
		{"h", "0"},
		{"i", properties},
		{"j", "0"},
		{"k", "false"},
		{"m", "false"},
		{"n", s.broker},
	}, content(s.body))
	made.queueID = placeOfQueue(made.frame, s.headers, queue)
	return made
}

func keyOf(connection int, born int64) string {
	return fmt.Sprintf("7F000001%04X%08X", connection&0xFFFF, uint32(born)) + keyPlace
}

func pullTemplate(s settings, queue int, now int64) template {
	const suspended, subscriptionIncluded = 2, 4
	sysFlag := subscriptionIncluded
	if s.holdMs > 0 {
		sysFlag |= suspended
	}
	return s.template(pullMessage, []field{
		{"queueId", fmt.Sprint(queue)},
		{"maxMsgBytes", "262144"},
		{"maxMsgNums", fmt.Sprint(s.batch)},
		{"sysFlag", fmt.Sprint(sysFlag)},
		{"suspendTimeoutMillis", fmt.Sprint(s.holdMs)},
		{"commitOffset", "0"},
		{"subscription", s.expression},
		{"bname", s.broker},
		{"topic", s.topic},
		{"queueOffset", offsetPlace},
		{"expressionType", "TAG"},
		{"subVersion", fmt.Sprint(now)},
		{"consumerGroup", s.group},
	}, nil)
}

func newTemplate(headers string, code int, fields []field, body []byte) template {
	var header []byte
	inBinary := headers == "binary"
	switch shape := shapes[headers]; {
	case inBinary:
		header = headerInBinary(code, fields)
	case shape != nil:
		header = shape.header(code, fields)
	default:
		header = headerInJSON(code, fields)
	}
	frame := make([]byte, 8, 8+len(header)+len(body))
	binary.BigEndian.PutUint32(frame, uint32(4+len(header)+len(body)))
	binary.BigEndian.PutUint32(frame[4:], uint32(len(header)))
	made := template{binary: inBinary}
	if inBinary {
		frame[4] = binaryHeader
		made.opaque = 8 + 5
	} else {
		made.opaque = 8 + bytes.Index(header, []byte(`"opaque":`+opaquePlace)) + len(`"opaque":`)
	}
	made.key = place(header, keyPlace)
	made.offset = place(header, offsetPlace)
	made.born = place(header, bornPlace)
	made.due = place(header, duePlace)
	made.queue = place(header, queuePlace)
	made.tag = place(header, tagPlace)
	made.frame = append(append(frame, header...), body...)
	return made
}

func place(header []byte, holder string) int {
	if at := bytes.Index(header, []byte(holder)); at >= 0 {
		return 8 + at
	}
	return -1
}

func headerInJSON(code int, fields []field) []byte {
	var header bytes.Buffer
	fmt.Fprintf(&header, `{"code":%d,"extFields":{`, code)
	for number, each := range fields {
		if number > 0 {
			header.WriteByte(',')
		}
		value, _ := json.Marshal(each.value) // a string always has a JSON form
		fmt.Fprintf(&header, `"%s":%s`, each.name, value)
	}
	fmt.Fprintf(
		&header,
		`},"flag":0,"language":"%s","opaque":%s,"serializeTypeCurrentRPC":"JSON","version":%d}`,
		languageInJSON, opaquePlace, clientVersion,
	)
	return header.Bytes()
}

func headerInBinary(code int, fields []field) []byte {
	var encoded []byte
	for _, each := range fields {
		encoded = append(encoded, byte(len(each.name)>>8), byte(len(each.name)))
		encoded = append(encoded, each.name...)
		encoded = appendUint32(encoded, uint32(len(each.value)))
		encoded = append(encoded, each.value...)
	}
	header := []byte{byte(code >> 8), byte(code), languageJava, clientVersion >> 8, clientVersion & 0xFF}
	header = appendUint32(header, 0) // opaque
	header = appendUint32(header, 0) // flag: a request
	header = appendUint32(header, 0) // no remark
	header = appendUint32(header, uint32(len(encoded)))
	return append(header, encoded...)
}

func appendUint32(to []byte, value uint32) []byte {
	return append(to, byte(value>>24), byte(value>>16), byte(value>>8), byte(value))
}

// content is a body that does not compress; it is the same in every run.
func content(size int) []byte {
	body := make([]byte, size)
	value := uint32(1)
	for at := range body {
		value = value*1_664_525 + 1_013_904_223
		body[at] = byte(value >> 24)
	}
	return body
}

// appendTo writes one request of this template behind others.
func (t *template) appendTo(buffer []byte, opaque int32, number int64) []byte {
	start := len(buffer)
	buffer = append(buffer, t.frame...)
	frame := buffer[start:]
	if t.binary {
		binary.BigEndian.PutUint32(frame[t.opaque:], uint32(opaque))
	} else {
		putDigits(frame[t.opaque:t.opaque+opaqueDigits], int64(opaque), 10)
	}
	if t.key >= 0 {
		putDigits(frame[t.key:t.key+countedDigits], number, 16)
	}
	for at, key := range t.keys {
		putDigits(frame[key:key+countedDigits], number*int64(len(t.keys))+int64(at), 16)
	}
	if t.offset >= 0 {
		putDigits(frame[t.offset:t.offset+offsetDigits], number, 10)
	}
	return buffer
}

// setTimes writes times into a request of this template that was just put there, if it has places for them.
func (t *template) setTimes(frame []byte, bornMs, dueMs int64) {
	if t.born >= 0 {
		putDigits(frame[t.born:t.born+timeDigits], bornMs, 10)
	}
	if t.due >= 0 {
		putDigits(frame[t.due:t.due+timeDigits], dueMs, 10)
	}
}

// setTag gives a request of this template that was just put there the tag that one of so many messages has, or that of
// the others.
func (t *template) setTag(frame []byte, number, every int64) {
	if t.tag >= 0 && number%every != 0 {
		frame[t.tag+len(tagPlace)-1] = 'B'
	}
}

// putDigits fills a place with a number, from the right, with leading zeros.
func putDigits(place []byte, value, base int64) {
	for at := len(place) - 1; at >= 0; at-- {
		place[at] = "0123456789ABCDEF"[value%base]
		value /= base
	}
}
