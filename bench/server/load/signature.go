// Signed requests, as RocketMQ's clients sign them, and connections with TLS.
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"hash"
	"net"
	"sort"
	"strings"
)

// A place holder of the length that the signature has in Base64.
var signaturePlace = strings.Repeat("Z", base64.StdEncoding.EncodedLen(sha1.Size))

// signature is how the requests of a template are signed: the values in the order of their names, then the body. What
// differs between two requests is copied from the frame that is to be signed.
type signature struct {
	mac     hash.Hash
	content []byte
	// values is where the body begins in the content.
	values int
	// frame is where the signature stands in a frame; the others are places in the content, or -1.
	frame, key, offset, queue int
	digits                    int
}

// template is a template whose requests are signed, if there are credentials.
func (s settings) template(code int, fields []field, body []byte) template {
	if s.accessKey == "" {
		return newTemplate(s.headers, code, fields, body)
	}
	fields = append(fields, field{"AccessKey", s.accessKey})
	made := newTemplate(s.headers, code, append(fields, field{"Signature", signaturePlace}), body)
	made.signature = newSignature(s.secretKey, fields, body)
	made.signature.frame = bytes.Index(made.frame, []byte(signaturePlace))
	return made
}

func newSignature(secret string, fields []field, body []byte) *signature {
	made := &signature{mac: hmac.New(sha1.New, []byte(secret)), queue: -1}
	sorted := append([]field(nil), fields...)
	sort.Slice(sorted, func(a, b int) bool { return sorted[a].name < sorted[b].name })
	for _, each := range sorted {
		if each.name == "e" {
			made.queue, made.digits = len(made.content), len(each.value)
		}
		made.content = append(made.content, each.value...)
	}
	made.key = bytes.Index(made.content, []byte(keyPlace))
	made.offset = bytes.Index(made.content, []byte(offsetPlace))
	made.values = len(made.content)
	made.content = append(made.content, body...)
	return made
}

// sign writes the signature into a request of this template, in which everything else is final.
func (t *template) sign(frame []byte) {
	s := t.signature
	if s == nil {
		return
	}
	if s.key >= 0 {
		copy(s.content[s.key:], frame[t.key:t.key+countedDigits])
	}
	if s.offset >= 0 {
		copy(s.content[s.offset:], frame[t.offset:t.offset+offsetDigits])
	}
	if s.queue >= 0 {
		copy(s.content[s.queue:], frame[t.queueID:t.queueID+s.digits])
	}
	body := s.content[s.values:]
	copy(body, frame[len(frame)-len(body):])
	s.mac.Reset()
	s.mac.Write(s.content)
	var sum [sha1.Size]byte
	base64.StdEncoding.Encode(frame[s.frame:], s.mac.Sum(sum[:0]))
}

// checkSecurity refuses what the load does not sign: requests whose properties change, and headers that escape Base64.
func (s settings) checkSecurity() error {
	changes := s.dueFrom > 0 || s.delayLevel > 0 || s.tagEvery > 1
	signed := s.mode == "send" || s.mode == "send-batch" || s.mode == "pull"
	switch {
	case s.accessKey == "" && s.secretKey != "" || s.accessKey != "" && s.secretKey == "":
		return fmt.Errorf("requests are signed with an access key and a secret key")
	case s.accessKey != "" && (!signed || changes || s.protocol != "rocketmq" || s.headers != "json" && s.headers != "binary"):
		return fmt.Errorf("only sends without times and tags, batches and pulls are signed, with headers of the Java client")
	case s.tls && s.protocol != "rocketmq":
		return fmt.Errorf("only RocketMQ's protocol is spoken over TLS")
	}
	return nil
}

// dial opens a connection. The certificate is not verified: it is that of a server which the same run has started.
func (s settings) dial(address string) (net.Conn, error) {
	if s.tls {
		return tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	}
	return net.Dial("tcp", address)
}
