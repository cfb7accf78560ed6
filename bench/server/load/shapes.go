// Headers of sends and pulls as clients other than the Java one write them.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// shape is how a client writes a JSON header.
type shape struct {
	code      int               // of a send
	names     map[string]string // of the fields of a send, where they are not the letters
	before    string            // between the code and the fields
	after     string            // behind the fields
	dropped   string            // fields that the client does not send
	unquoted  string            // fields whose value is a number or a boolean
	uniqueKey bool              // the client makes unique keys
	end       string            // behind the header
}

var shapes = map[string]*shape{
	// The Go client 2.1.2: SEND_MESSAGE with long names.
	"go": {
		code: sendMessage,
		names: map[string]string{
			"a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId",
			"f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes",
			"k": "unitMode", "m": "batch",
		},
		before:    `"language":"GO","version":317,"opaque":` + opaquePlace + `,"flag":0,"remark":"","extFields":`,
		after:     `}`,
		dropped:   "n bname maxMsgBytes",
		uniqueKey: true,
	},
	// ali-ons 3.12 for Node.
	"node": {
		code:     sendMessageV2,
		before:   `"language":"JAVA","opaque":` + opaquePlace + `,"flag":0,"version":121,"extFields":`,
		after:    `}`,
		dropped:  "m n bname maxMsgBytes expressionType",
		unquoted: "d e f g h j k queueId queueOffset maxMsgNums sysFlag commitOffset suspendTimeoutMillis subVersion",
	},
	// The C++ client 2.x: keys in alphabetical order, an empty remark, a line end.
	"cpp": {
		code:      sendMessageV2,
		before:    `"extFields":`,
		after:     `,"flag":0,"language":"CPP","opaque":` + opaquePlace + `,"remark":"","version":333}`,
		dropped:   "n bname maxMsgBytes",
		uniqueKey: true,
		end:       "\n",
	},
}

const sendMessage = 10

// header writes the header of a request; the code of a send is that of the client.
func (s *shape) header(code int, fields []field) []byte {
	var header bytes.Buffer
	if code == sendMessageV2 {
		code = s.code
	}
	fmt.Fprintf(&header, `{"code":%d,%s{`, code, s.before)
	isFirst := true
	for _, each := range fields {
		if contains(s.dropped, each.name) {
			continue
		}
		if !isFirst {
			header.WriteByte(',')
		}
		isFirst = false
		name := each.name
		if long := s.names[name]; long != "" {
			name = long
		}
		value, _ := json.Marshal(each.value) // a string always has a JSON form
		if contains(s.unquoted, each.name) {
			value = []byte(each.value)
		}
		fmt.Fprintf(&header, `"%s":%s`, name, value)
	}
	header.WriteString("}" + s.after + s.end)
	return header.Bytes()
}

// queueBefore is the text in front of the number of a send's queue.
func (s *shape) queueBefore() string {
	name := "e"
	if long := s.names[name]; long != "" {
		name = long
	}
	if contains(s.unquoted, "e") {
		return fmt.Sprintf(`"%s":`, name)
	}
	return fmt.Sprintf(`"%s":"`, name)
}

func contains(names, name string) bool {
	for _, each := range bytes.Fields([]byte(names)) {
		if string(each) == name {
			return true
		}
	}
	return false
}
