package main

import (
	"bytes"
	"testing"
	"time"
)

func TestOffsetsAreCommittedWithoutAnAnswerButTheLast(t *testing.T) {
	s := settings{mode: "commit-oneway", headers: "json", topic: "T", group: "G", broker: "b", queues: 2, inFlight: 1, batch: 4}
	l := newRequestWorker(s, 1, nil)
	l.request(0, time.Now())
	if bytes.Count(l.out, []byte(`"flag":2`)) != 3 || bytes.Count(l.out, []byte(`"flag":0`)) != 1 {
		t.Errorf("%q", l.out)
	}
	for _, wanted := range []string{`"code":15`, `"queueId":"1"`, `"consumerGroup":"G-1"`, `"commitOffset":"000000000001"`, `"commitOffset":"000000000004"`} {
		if !bytes.Contains(l.out, []byte(wanted)) {
			t.Errorf("%s is not in %q", wanted, l.out)
		}
	}
	if s.perRequest() != 4 {
		t.Errorf("%d commits", s.perRequest())
	}
}

func TestClientsHaveIdsOfTheirOwnAndShareGroups(t *testing.T) {
	s := settings{mode: "heartbeat", headers: "json", topic: "T", group: "G"}
	first, last, other := heartbeatTemplate(s, 0), heartbeatTemplate(s, 99), heartbeatTemplate(s, 100)
	for at, made := range []template{first, last, other} {
		frame := made.appendTo(nil, 1_234_567, 0)
		group := []byte(`"groupName":"G-0"`)
		if at == 2 {
			group = []byte(`"groupName":"G-1"`)
		}
		if !bytes.Contains(frame, group) || !bytes.Contains(frame, []byte(`"opaque":1234567`)) {
			t.Errorf("client %d: %q", at, frame)
		}
	}
	if bytes.Equal(first.frame, last.frame) {
		t.Error("two clients say the same")
	}
}

func TestWhatTheBrokerSendsByItselfIsNoAnswer(t *testing.T) {
	for _, headers := range []string{"json", "binary"} {
		news := newTemplate(headers, 40, []field{{"consumerGroup", "G"}}, nil)
		if !isRequest(news.appendTo(nil, 1_234_567, 0)[4:]) {
			t.Errorf("%s: a request is an answer", headers)
		}
	}
	if header := []byte(`{"code":0,"flag":1,"opaque":1234567}`); isRequest(append([]byte{0, 0, 0, byte(len(header))}, header...)) {
		t.Error("an answer is a request")
	}
}
