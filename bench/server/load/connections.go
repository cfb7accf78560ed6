// The connections of a run: to one broker or to several, with the work that its mode gives to each.
package main

import (
	"strings"
	"syscall"
	"time"
)

func (s settings) addresses() []string { return strings.Split(s.address, ",") }

// at is the same work at one of several brokers.
func (s settings) at(number int) settings {
	brokers := strings.Split(s.broker, ",")
	s.address, s.broker = s.addresses()[number%len(brokers)], brokers[number%len(brokers)]
	return s
}

// connect makes the workers of a run, and how those that send meet those that follow, if there are any.
func connect(s settings) ([]worker, *meeting, error) {
	if s.mode == "flood" {
		return connectFlood(s)
	}
	var workers []worker
	var met *meeting
	if s.stamps() {
		met = &meeting{}
		met.senders.Store(int64(s.connections))
	}
	for number := 0; number < s.connections; number++ {
		here := s.at(number)
		socket, err := here.dial(here.address)
		if err != nil {
			return nil, nil, err
		}
		var made worker
		switch {
		case s.mode == "pop" || s.mode == "pop-batch":
			made = newPopWorker(here, socket)
		case s.mode == "heartbeat":
			if made, err = newHeartbeatWorker(here, number, socket); err != nil {
				return nil, nil, err
			}
		case s.steady():
			made = newSteadyWorker(here, number, socket)
		default:
			made = newRequestWorker(here, number, socket)
		}
		if met != nil {
			made = sender{made, met, s.settle}
		}
		workers = append(workers, made)
	}
	if met == nil {
		return workers, nil, nil
	}
	for number := 0; number < s.followers; number++ {
		socket, err := s.dial(s.address)
		if err != nil {
			return nil, nil, err
		}
		met.sockets = append(met.sockets, socket)
		workers = append(workers, newFollower(s, number, socket, met))
	}
	return workers, met, nil
}

// addSends adds what was found of the sends whose messages were followed; those that never came have failed.
func (r *result) addSends(sends *tally, start time.Time, lost int64) {
	r.Sent, r.SentSeconds = sends.messages, float64(max64(int64(sends.last.Sub(start)), 0))/float64(time.Second)
	r.SentP50, r.SentP99 = sends.latencies.quantile(0.50), sends.latencies.quantile(0.99)
	r.SentP999 = sends.latencies.quantile(0.999)
	r.Failures += sends.failures + lost
	if r.Failure == "" {
		r.Failure = sends.failure
	}
	if r.Failure == "" && lost > 0 {
		r.Failure = "messages that were sent and never came"
	}
}

// processorSeconds is the time that this process has used so far.
func processorSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / float64(time.Second)
}
