// A connection that pops and acknowledges: each slot asks for a batch, acknowledges all of it, asks again.
package main

import (
	"encoding/base64"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	popMessage      = 200050
	ackMessage      = 200051
	batchAckMessage = 200151
	pollingFull     = 209
	pollingTimeOut  = 210

	// The maximum wait of a pop: the server polls again while another consumer holds the queue's lock.
	pollMs = 1000
	// A slot has a pop in flight or its acknowledgements: the opaque says which slot, and 0 is the pop.
	perSlot = 64
	// What a server hands out at most.
	mostPopped = 32
)

type popSlot struct {
	sent     time.Time
	unacked  int
	messages int64
}

type popWorker struct {
	tally
	stream
	settings settings
	pop      template
	slots    []popSlot
	open     int
	popped   int64
	most     int64
	end      time.Time
	tail     string
}

func newPopWorker(s settings, socket net.Conn) *popWorker {
	made := &popWorker{settings: s, stream: stream{socket: socket}, slots: make([]popSlot, s.inFlight)}
	made.pop = newTemplate("json", popMessage, []field{
		{"consumerGroup", s.group},
		{"topic", s.topic},
		{"queueId", "-1"},
		{"maxMsgNums", fmt.Sprint(s.batch)},
		{"invisibleTime", fmt.Sprint(s.invisibleMs)},
		{"pollTime", fmt.Sprint(pollMs)},
		{"bornTime", bornPlace},
		{"initMode", "0"},
		{"expType", "TAG"},
		{"exp", "*"},
		{"order", "false"},
		{"bname", s.broker},
	}, nil)
	made.tail = fmt.Sprintf(
		`,"flag":0,"language":"%s","serializeTypeCurrentRPC":"JSON","version":%d}`, languageInJSON, clientVersion,
	)
	return made
}

func (l *popWorker) found() *tally { return &l.tally }

// run goes on until the end, or until there were so many messages, and acknowledges all that it got.
func (l *popWorker) run(end time.Time, messages int64) error {
	l.end, l.most = end, messages
	now := time.Now()
	for at := range l.slots {
		l.request(at, now)
		l.open++
	}
	if err := l.flush(); err != nil {
		return err
	}
	for l.open > 0 {
		if err := l.read(l.answered); err != nil {
			return err
		}
	}
	return nil
}

func (l *popWorker) request(at int, now time.Time) {
	l.slots[at].sent = now
	start := len(l.out)
	l.out = l.pop.appendTo(l.out, lowestOpaque+int32(at*perSlot), 0)
	l.pop.setTimes(l.out[start:], now.UnixMilli(), 0)
}

// goOn asks for the next batch of a slot, unless it is over.
func (l *popWorker) goOn(at int, now time.Time) {
	if now.Before(l.end) && (l.most < 0 || l.popped < l.most) {
		l.request(at, now)
	} else {
		l.open--
	}
}

func (l *popWorker) answered(frame []byte, now time.Time) error {
	got, err := parseAnswer(frame)
	if err != nil {
		return err
	}
	l.requests++
	number := int(got.opaque - lowestOpaque)
	at := number / perSlot
	if number < 0 || at >= len(l.slots) {
		return fmt.Errorf("an answer to request %d, which is not in flight", got.opaque)
	}
	s := &l.slots[at]
	if number%perSlot > 0 {
		if got.code != success {
			l.failed(&got)
			s.messages = 0
		}
		l.messages += s.messages
		l.last = now
		s.unacked--
		if s.unacked == 0 {
			l.latencies.record(now.Sub(s.sent))
			l.goOn(at, now)
		}
		return nil
	}
	switch got.code {
	case success:
		return l.acknowledge(at, &got)
	case pollingFull, pollingTimeOut:
	default:
		l.failed(&got)
	}
	l.goOn(at, now)
	return nil
}

// receipts is what an answer says of the pop as a whole.
type receipts struct {
	popTime, invisible, reviveQueue string
	starts                          map[int]string
}

func readReceipts(got *answer) (receipts, error) {
	var r receipts
	var found [4]bool
	var starts string
	r.popTime, found[0] = textAfter(got.header, `"popTime":"`)
	r.invisible, found[1] = textAfter(got.header, `"invisibleTime":"`)
	r.reviveQueue, found[2] = textAfter(got.header, `"reviveQid":"`)
	starts, found[3] = textAfter(got.header, `"startOffsetInfo":"`)
	if found != [4]bool{true, true, true, true} {
		return r, fmt.Errorf("an answer to a pop without receipts: %q", got.header)
	}
	r.starts = map[int]string{}
	for _, each := range strings.Split(starts, ";") {
		// Kind of topic, queue, offset.
		words := strings.Fields(each)
		if len(words) != 3 {
			return r, fmt.Errorf("%q are no start offsets", starts)
		}
		queue, err := strconv.Atoi(words[1])
		if err != nil {
			return r, err
		}
		r.starts[queue] = words[2]
	}
	return r, nil
}

func (l *popWorker) acknowledge(at int, got *answer) error {
	r, err := readReceipts(got)
	if err != nil {
		return err
	}
	s := &l.slots[at]
	count := 0
	byQueue := map[int][]int64{}
	if !eachRecord(got.body, func(record []byte) {
		count++
		byQueue[queueOf(record)] = append(byQueue[queueOf(record)], queueOffset(record))
	}) || count == 0 || count > mostPopped {
		return fmt.Errorf("a pop gave %d messages", count)
	}
	l.popped += int64(count)
	first := lowestOpaque + int32(at*perSlot)
	if l.settings.mode == "pop-batch" {
		l.appendBatch(first+1, &r, byQueue)
		s.unacked, s.messages = 1, int64(count)
		return nil
	}
	s.unacked, s.messages = count, 1
	for queue, offsets := range byQueue {
		for _, offset := range offsets {
			first++
			l.appendAck(first, &r, queue, offset)
		}
	}
	return nil
}

func (l *popWorker) appendAck(opaque int32, r *receipts, queue int, offset int64) {
	s := &l.settings
	l.appendFrame(fmt.Sprintf(
		`{"code":%d,"extFields":{"consumerGroup":"%s","topic":"%s","queueId":"%d",`+
			`"extraInfo":"%s %s %s %s 0 %s %d %d","offset":"%d","bname":"%s"},"opaque":%d`,
		ackMessage, s.group, s.topic, queue,
		r.starts[queue], r.popTime, r.invisible, r.reviveQueue, s.broker, queue, offset, offset, s.broker, opaque,
	), "")
}

func (l *popWorker) appendBatch(opaque int32, r *receipts, byQueue map[int][]int64) {
	s := &l.settings
	var acks []string
	for queue, offsets := range byQueue {
		start, _ := strconv.ParseInt(r.starts[queue], 10, 64) // it was a number in every answer so far
		bits := make([]byte, (offsets[len(offsets)-1]-start)/8+1)
		for _, offset := range offsets {
			bits[(offset-start)/8] |= 1 << ((offset - start) % 8)
		}
		acks = append(acks, fmt.Sprintf(
			`{"b":"%s","c":"%s","it":%s,"pt":%s,"q":%d,"r":"0","rq":%s,"so":%d,"t":"%s"}`,
			base64.StdEncoding.EncodeToString(bits), s.group, r.invisible, r.popTime, queue, r.reviveQueue, start, s.topic,
		))
	}
	l.appendFrame(
		fmt.Sprintf(`{"code":%d,"extFields":{"bname":"%s"},"opaque":%d`, batchAckMessage, s.broker, opaque),
		fmt.Sprintf(`{"acks":[%s],"brokerName":"%s"}`, strings.Join(acks, ","), s.broker),
	)
}

func (l *popWorker) appendFrame(header, body string) {
	size := len(header) + len(l.tail)
	l.out = appendUint32(l.out, uint32(4+size+len(body)))
	l.out = appendUint32(l.out, uint32(size))
	l.out = append(append(append(l.out, header...), l.tail...), body...)
}
