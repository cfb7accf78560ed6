// Answers, read in place: code, opaque and next offset, from either kind of header.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// A server may hand out this much in one frame; more is a broken stream.
const maxFrame = 16 << 20

var errHeader = errors.New("an answer's header cannot be read")

// answer points into the frame it was read from.
type answer struct {
	code   int
	opaque int32
	header []byte
	binary bool
	body   []byte
}

// parseAnswer reads a frame without its length.
func parseAnswer(frame []byte) (answer, error) {
	if len(frame) < 4 {
		return answer{}, errHeader
	}
	size := int(binary.BigEndian.Uint32(frame) & 0xFFFFFF)
	if 4+size > len(frame) {
		return answer{}, errHeader
	}
	got := answer{header: frame[4 : 4+size], body: frame[4+size:], binary: frame[0] == binaryHeader}
	if got.binary {
		if size < 21 {
			return answer{}, errHeader
		}
		got.code = int(binary.BigEndian.Uint16(got.header))
		got.opaque = int32(binary.BigEndian.Uint32(got.header[5:]))
		return got, nil
	}
	code, found := numberAfter(got.header, `"code":`)
	opaque, too := numberAfter(got.header, `"opaque":`)
	if !found || !too {
		return answer{}, errHeader
	}
	got.code, got.opaque = int(code), int32(opaque)
	return got, nil
}

// nextOffset is where the next pull of this queue begins.
func (a *answer) nextOffset() (int64, bool) {
	if !a.binary {
		return numberAfter(a.header, `"nextBeginOffset":`)
	}
	name := []byte("nextBeginOffset")
	at := bytes.Index(a.header, name)
	if at < 0 || at+len(name)+4 > len(a.header) {
		return 0, false
	}
	return number(a.header[at+len(name)+4:])
}

// complaint describes the error response of a server.
func (a *answer) complaint() string {
	if a.binary {
		size := int(binary.BigEndian.Uint32(a.header[13:]))
		if 17+size > len(a.header) {
			size = 0
		}
		return fmt.Sprintf("code %d: %s", a.code, a.header[17:17+size])
	}
	var header struct {
		Remark string `json:"remark"`
	}
	_ = json.Unmarshal(a.header, &header) // without a remark the code has to do
	return fmt.Sprintf("code %d: %s", a.code, header.Remark)
}

func numberAfter(header []byte, name string) (int64, bool) {
	at := bytes.Index(header, []byte(name))
	if at < 0 {
		return 0, false
	}
	rest := header[at+len(name):]
	for len(rest) > 0 && (rest[0] == ' ' || rest[0] == '"') {
		rest = rest[1:]
	}
	return number(rest)
}

func number(digits []byte) (int64, bool) {
	var value int64
	at := 0
	for ; at < len(digits) && '0' <= digits[at] && digits[at] <= '9'; at++ {
		value = value*10 + int64(digits[at]-'0')
	}
	return value, at > 0
}

// textAfter is a string in a JSON header that has nothing to unescape.
func textAfter(header []byte, name string) (string, bool) {
	at := bytes.Index(header, []byte(name))
	if at < 0 {
		return "", false
	}
	rest := header[at+len(name):]
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return "", false
	}
	return string(rest[:end]), true
}
