// Clients that behave badly, for the latency that others have beside them: connections that say nothing, that never read
// their answers, that come and go, or that write their frames byte by byte.
package main

import (
	"encoding/binary"
	"net"
	"sync"
	"time"
)

const (
	// Connections that are opened at the same time.
	opening = 64
	// What a client that never reads asks for before it waits to be cut off.
	deafRequests = 256
	// Between two bytes of a client that writes slowly.
	slowPause = 100 * time.Millisecond
	// Between two looks of a worker that only waits.
	floodNap = 20 * time.Millisecond
)

// floods, and what one connection of each does until the end.
var floods = map[string]func(l *floodWorker, end time.Time){
	"idle":     (*floodWorker).stay,
	"deaf":     (*floodWorker).neverRead,
	"connects": (*floodWorker).comeAndGo,
	"slow":     (*floodWorker).writeSlowly,
}

// floodWorker is one bad client; it counts the connections that it had.
type floodWorker struct {
	tally
	settings settings
	number   int
	socket   net.Conn
}

func connectFlood(s settings) ([]worker, *meeting, error) {
	made := make([]worker, s.connections)
	failures := make(chan error, s.connections)
	room := make(chan struct{}, opening)
	var all sync.WaitGroup
	for number := range made {
		flood := &floodWorker{settings: s, number: number}
		made[number] = flood
		all.Add(1)
		room <- struct{}{}
		go func() {
			defer all.Done()
			if s.flood != "connects" {
				if err := flood.connect(); err != nil {
					failures <- err
				}
			}
			<-room
		}()
	}
	all.Wait()
	select {
	case err := <-failures:
		return nil, nil, err
	default:
		return made, nil, nil
	}
}

func (l *floodWorker) found() *tally { return &l.tally }

func (l *floodWorker) connect() error {
	socket, err := l.settings.dial(l.settings.address)
	if err == nil {
		l.socket = socket
		l.messages++
	}
	return err
}

func (l *floodWorker) run(end time.Time, _ int64) error {
	floods[l.settings.flood](l, end)
	l.last = time.Now()
	if l.socket != nil {
		l.socket.Close()
	}
	return nil
}

// again opens a connection in the place of one that the server has closed; false at the end.
func (l *floodWorker) again(end time.Time) bool {
	l.socket.Close()
	for time.Now().Before(end) {
		if l.connect() == nil {
			return true
		}
		time.Sleep(floodNap)
	}
	return false
}

// stay says nothing.
func (l *floodWorker) stay(end time.Time) { time.Sleep(time.Until(end)) }

// neverRead asks for messages and reads none of them, again and again on a new connection when it was cut off.
func (l *floodWorker) neverRead(end time.Time) {
	asked := pullTemplate(l.settings, l.number%l.settings.queues, time.Now().UnixMilli())
	var requests []byte
	for number := 0; number < deafRequests; number++ {
		requests = asked.appendTo(requests, lowestOpaque+int32(number), 0)
	}
	for time.Now().Before(end) {
		l.socket.SetWriteDeadline(end)
		_, err := l.socket.Write(requests)
		// The server pauses; it is at its limit of what it keeps for this connection.
		if err == nil {
			time.Sleep(floodNap)
		} else if !l.again(end) {
			return
		}
	}
}

// comeAndGo connects, writes a request every other time, and closes, at its share of the rate.
func (l *floodWorker) comeAndGo(end time.Time) {
	pause := time.Duration(float64(time.Second) * float64(l.settings.connections) / l.settings.rate)
	asked := pullTemplate(l.settings, 0, time.Now().UnixMilli()).frame
	for next := time.Now(); next.Before(end); next = next.Add(pause) {
		time.Sleep(time.Until(next))
		if l.connect() == nil {
			if l.messages%2 == 0 {
				l.socket.Write(asked)
			}
			l.socket.Close()
		}
	}
	l.socket = nil
}

// writeSlowly writes a send byte by byte, and the next one when the server has closed the connection.
func (l *floodWorker) writeSlowly(end time.Time) {
	frame := make([]byte, 4, 4+1<<20)
	binary.BigEndian.PutUint32(frame, 1<<20)
	for at := 0; time.Now().Before(end); at++ {
		if at >= len(frame) {
			frame = append(frame, 0)
		}
		if _, err := l.socket.Write(frame[at : at+1]); err != nil {
			at = -1
			if !l.again(end) {
				return
			}
		}
		time.Sleep(slowPause)
	}
}
