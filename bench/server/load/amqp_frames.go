// AMQP 0-9-1: frames and the few methods that a load needs, on channel 1 of a connection.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	amqpMethod, amqpHeader, amqpBody, amqpHeartbeat = 1, 2, 3, 8
	amqpEnd                                         = 0xCE
	// Kind, channel and size before what a frame carries, and a byte behind it.
	amqpHead, amqpTail = 7, 1
	// What RabbitMQ offers; a body has to fit one frame.
	amqpFrameMax = 131_072
	mostAMQPBody = amqpFrameMax - amqpHead - amqpTail

	amqpConnection, amqpChannel, amqpQueue, amqpBasic, amqpConfirm = 10, 20, 50, 60, 85

	connectionCloseID, connectionBlockedID  = 50, 60
	channelCloseID, channelCloseOkID        = 40, 41
	basicDeliverID, basicAckID, basicNackID = 60, 80, 120

	onChannel = 1
)

var errAMQPFrame = errors.New("a frame cannot be read")

// amqpStream is a socket as AMQP frames.
type amqpStream struct{ stream }

// readFrames waits for something to arrive, hands over the frames that are whole, and flushes.
func (s *amqpStream) readFrames(handle func(kind byte, payload []byte, now time.Time) error) error {
	if s.buffer == nil {
		s.buffer = make([]byte, readBuffer+amqpFrameMax)
	}
	if err := s.socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	got, err := s.socket.Read(s.buffer[s.held:])
	if err == io.EOF {
		return errors.New("closed by the server with messages in flight")
	}
	if err != nil {
		return err
	}
	s.held += got
	now := time.Now()
	used := 0
	for s.held-used >= amqpHead {
		size := int(binary.BigEndian.Uint32(s.buffer[used+3:]))
		if size > mostAMQPBody {
			return fmt.Errorf("a frame of %d bytes", size)
		}
		whole := amqpHead + size + amqpTail
		if s.held-used < whole {
			break
		}
		if s.buffer[used+whole-1] != amqpEnd {
			return errAMQPFrame
		}
		if err := handle(s.buffer[used], s.buffer[used+amqpHead:used+amqpHead+size], now); err != nil {
			return err
		}
		used += whole
	}
	s.held = copy(s.buffer, s.buffer[used:s.held])
	return s.flush()
}

// call sends a method and returns the arguments of the answer, which is of this kind.
func (s *amqpStream) call(frame []byte, class, method uint16) ([]byte, error) {
	s.out = append(s.out, frame...)
	if err := s.flush(); err != nil {
		return nil, err
	}
	var answer []byte
	for answer == nil {
		err := s.readFrames(func(kind byte, payload []byte, _ time.Time) error {
			gotClass, gotMethod, arguments, err := methodOf(kind, payload)
			switch {
			case err != nil || kind == amqpHeartbeat:
				return err
			case gotClass != class || gotMethod != method:
				return complaint(gotClass, gotMethod, arguments)
			}
			answer = append([]byte{}, arguments...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// methodOf is what a method's frame carries.
func methodOf(kind byte, payload []byte) (class, method uint16, arguments []byte, err error) {
	if kind == amqpHeartbeat {
		return 0, 0, nil, nil
	}
	if kind != amqpMethod || len(payload) < 4 {
		return 0, 0, nil, errAMQPFrame
	}
	return binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:]), payload[4:], nil
}

// complaint describes an unexpected response of a server.
func complaint(class, method uint16, arguments []byte) error {
	text := func(at int) string {
		if at >= len(arguments) || at+1+int(arguments[at]) > len(arguments) {
			return "no reason given"
		}
		return string(arguments[at+1 : at+1+int(arguments[at])])
	}
	switch {
	case class == amqpConnection && method == connectionCloseID, class == amqpChannel && method == channelCloseID:
		return fmt.Errorf("closed by the server: %s", text(2))
	case class == amqpConnection && method == connectionBlockedID:
		return fmt.Errorf("the server takes no messages now: %s", text(0))
	}
	return fmt.Errorf("method %d.%d was not expected", class, method)
}

// handshake makes the connection and opens a channel.
func (s *amqpStream) handshake() error {
	// The protocol's name and version are answered with connection.start.
	if _, err := s.call([]byte("AMQP\x00\x00\x09\x01"), amqpConnection, 10); err != nil {
		return err
	}
	tune, err := s.call(connectionStartOk(), amqpConnection, 30)
	if err != nil {
		return err
	}
	if len(tune) < 8 {
		return errAMQPFrame
	}
	tuned := append(append([]byte{}, tune[:2]...), 0, 0, 0, 0, 0, 0) // channels as offered, frames, no heartbeats
	binary.BigEndian.PutUint32(tuned[2:], amqpFrameMax)
	s.out = append(s.out, methodFrame(0, amqpConnection, 31, tuned)...)
	if _, err := s.call(methodFrame(0, amqpConnection, 40, []byte("\x01/\x00\x00")), amqpConnection, 41); err != nil {
		return err
	}
	_, err = s.call(methodFrame(onChannel, amqpChannel, 10, []byte{0}), amqpChannel, 11)
	return err
}

// declare makes a queue that outlives the server, if there is none, and says how many messages it has.
func (s *amqpStream) declare(queue string) (uint32, error) {
	const durable = 2
	arguments := append(shortText([]byte{0, 0}, queue), durable, 0, 0, 0, 0)
	answer, err := s.call(methodFrame(onChannel, amqpQueue, 10, arguments), amqpQueue, 11)
	if err != nil {
		return 0, err
	}
	if len(answer) < 1 || len(answer) < 1+int(answer[0])+8 {
		return 0, errAMQPFrame
	}
	return binary.BigEndian.Uint32(answer[1+int(answer[0]):]), nil
}

func amqpFrame(kind byte, channel uint16, payload []byte) []byte {
	frame := append(make([]byte, 0, amqpHead+len(payload)+amqpTail), kind)
	frame = binary.BigEndian.AppendUint16(frame, channel)
	frame = appendUint32(frame, uint32(len(payload)))
	return append(append(frame, payload...), amqpEnd)
}

func methodFrame(channel, class, method uint16, arguments []byte) []byte {
	payload := binary.BigEndian.AppendUint16(nil, class)
	payload = binary.BigEndian.AppendUint16(payload, method)
	return amqpFrame(amqpMethod, channel, append(payload, arguments...))
}

func shortText(to []byte, text string) []byte { return append(append(to, byte(len(text))), text...) }

func longText(to []byte, text string) []byte {
	return append(appendUint32(to, uint32(len(text))), text...)
}

// connectionStartOk is RabbitMQ's own first user, who may come from this machine only. With the capabilities the
// server says when it takes no messages, and which it could not take.
func connectionStartOk() []byte {
	var able []byte
	for _, name := range []string{"publisher_confirms", "basic.nack", "connection.blocked"} {
		able = append(shortText(able, name), 't', 1)
	}
	properties := append(shortText(nil, "capabilities"), 'F')
	properties = append(appendUint32(properties, uint32(len(able))), able...)
	arguments := append(appendUint32(nil, uint32(len(properties))), properties...)
	arguments = shortText(arguments, "PLAIN")
	arguments = longText(arguments, "\x00guest\x00guest")
	return methodFrame(0, amqpConnection, 11, shortText(arguments, "en_US"))
}

func queuePurge(queue string) []byte {
	return methodFrame(onChannel, amqpQueue, 30, append(shortText([]byte{0, 0}, queue), 0))
}

func confirmSelect() []byte { return methodFrame(onChannel, amqpConfirm, 10, []byte{0}) }

// basicQos limits what a consumer has and did not acknowledge.
func basicQos(messages int) []byte {
	arguments := binary.BigEndian.AppendUint16(appendUint32(nil, 0), uint16(messages))
	return methodFrame(onChannel, amqpBasic, 10, append(arguments, 0))
}

// basicConsume asks for a queue's messages, without an answer of its own.
func basicConsume(queue string) []byte {
	const noWait = 8
	arguments := shortText(shortText([]byte{0, 0}, queue), queue)
	return methodFrame(onChannel, amqpBasic, 20, append(arguments, noWait, 0, 0, 0, 0))
}

// basicAck acknowledges a message and all before it.
func basicAck(tag uint64) []byte {
	return methodFrame(onChannel, amqpBasic, basicAckID, append(binary.BigEndian.AppendUint64(nil, tag), 1))
}

func channelClose() []byte {
	return methodFrame(onChannel, amqpChannel, channelCloseID, []byte{0, 200, 0, 0, 0, 0, 0})
}

// publishFrames is a message by way of the exchange that knows every queue by its name: method, header and body.
func publishFrames(queue string, body []byte, persistent bool) []byte {
	const hasDeliveryMode = 1 << 12
	mode := byte(1)
	if persistent {
		mode = 2
	}
	arguments := shortText(shortText([]byte{0, 0}, ""), queue)
	frames := methodFrame(onChannel, amqpBasic, 40, append(arguments, 0))
	header := binary.BigEndian.AppendUint16(nil, amqpBasic)
	header = binary.BigEndian.AppendUint16(header, 0)
	header = binary.BigEndian.AppendUint64(header, uint64(len(body)))
	header = append(binary.BigEndian.AppendUint16(header, hasDeliveryMode), mode)
	frames = append(frames, amqpFrame(amqpHeader, onChannel, header)...)
	return append(frames, amqpFrame(amqpBody, onChannel, body)...)
}
