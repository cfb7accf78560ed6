// A socket as frames: what arrives is handed over frame by frame, what was put into out leaves in one write.
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	readBuffer = 256 << 10
	// A server that says nothing for so long has lost a request.
	patience = 30 * time.Second
)

type stream struct {
	socket net.Conn
	out    []byte
	buffer []byte
	held   int
}

// read waits for something to arrive, hands over the frames that are whole, without their lengths, and flushes.
func (s *stream) read(handle func(frame []byte, now time.Time) error) error {
	if s.buffer == nil {
		s.buffer = make([]byte, readBuffer)
	}
	if err := s.socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	got, err := s.socket.Read(s.buffer[s.held:])
	if err != nil {
		if err == io.EOF {
			return fmt.Errorf("closed by the server with requests in flight")
		}
		return err
	}
	s.held += got
	now := time.Now()
	used := 0
	for s.held-used >= 4 {
		size := int(binary.BigEndian.Uint32(s.buffer[used:]))
		if size < 4 || size > maxFrame {
			return fmt.Errorf("a frame of %d bytes", size)
		}
		if s.held-used < 4+size {
			if 4+size > len(s.buffer) {
				larger := make([]byte, 2*(4+size))
				copy(larger, s.buffer[used:s.held])
				s.buffer, s.held, used = larger, s.held-used, 0
			}
			break
		}
		if err := handle(s.buffer[used+4:used+4+size], now); err != nil {
			return err
		}
		used += 4 + size
	}
	s.held = copy(s.buffer, s.buffer[used:s.held])
	return s.flush()
}

func (s *stream) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	_, err := s.socket.Write(s.out)
	s.out = s.out[:0]
	return err
}
