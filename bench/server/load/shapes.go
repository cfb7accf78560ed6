// Headers of sends and pulls as clients other than the Java one write them.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

// shape is how a client writes a JSON header.
type shape struct {
	code      int               // of a send
	names     map[string]string // of the fields of a send, where they are not the letters
	before    string            // between the code and the fields
	after     string            // behind the fields
	dropped   string            // fields that the client does not send
	unquoted  string            // fields whose value is a number or a boolean
	zeros     bool              // false is 0
	sorted    bool              // fields are in alphabetical order
	added     []field           // fields that other clients do not send
	uniqueKey bool              // the client makes unique keys
	end       string            // behind the header
}

var longNames = map[string]string{
	"a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId",
	"f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes",
	"k": "unitMode", "m": "batch",
}

var shapes = map[string]*shape{
	// The Go client 2.1.2: SEND_MESSAGE with long names.
	"go": {
		code:      sendMessage,
		names:     longNames,
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
	// The C++ client: keys in alphabetical order, some numbers without quotes, booleans as 0, an empty remark, a line end.
	"cpp": {
		code:      sendMessage,
		names:     longNames,
		before:    `"extFields":`,
		after:     `,"flag":0,"language":"CPP","opaque":` + opaquePlace + `,"remark":"","version":63}`,
		dropped:   "n bname maxMsgBytes",
		unquoted:  "d e f h",
		zeros:     true,
		sorted:    true,
		added:     []field{{"AccessKey", ""}, {"OnsChannel", "ALIYUN"}, {"Signature", "95UDf8pxXAATFLiuxV+/lTXE02M="}},
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
	var members []string
	for _, each := range append(fields, s.added...) {
		if !contains(s.dropped, each.name) {
			members = append(members, s.member(each))
		}
	}
	if s.sorted {
		sort.Strings(members)
	}
	header.WriteString(strings.Join(members, ",") + "}" + s.after + s.end)
	return header.Bytes()
}

func (s *shape) member(of field) string {
	name, value := of.name, of.value
	if long := s.names[name]; long != "" {
		name = long
	}
	if s.zeros && value == "false" {
		value = "0"
	}
	if contains(s.unquoted, of.name) {
		return fmt.Sprintf(`"%s":%s`, name, value)
	}
	text, _ := json.Marshal(value) // a string always has a JSON form
	return fmt.Sprintf(`"%s":%s`, name, text)
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
