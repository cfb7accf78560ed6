// A raw load for servers that speak RocketMQ's remoting protocol: connections with a fixed number of requests
// in flight each, and nothing between the frames and the sockets that could be the slower side.
//
// It connects, says "ready" on its standard output, waits for a line on its standard input, works, and writes
// one JSON object. So whoever starts it can look at the server's clocks at the very beginning and end.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Settings of one run, as the command line gives them.
type settings struct {
	address     string
	mode        string
	headers     string
	connections int
	inFlight    int
	body        int
	topic       string
	queues      int
	broker      string
	group       string
	batch       int
	seconds     float64
	messages    int64
	rate        float64
	delayLevel  int
	delayMs     int64
	dueFrom     int64
	dueTo       int64
	invisibleMs int64
	offsets     []int64
}

// modes, and what each of them counts.
var modes = map[string]string{
	"send":        "messages that were taken; with -due-from or -delay-level they wait for their time",
	"pull":        "messages of the topic, again and again",
	"drain":       "messages behind -offsets, once, and how late they were",
	"transaction": "half messages that were sent and committed",
	"pop":         "messages that were popped and acknowledged one by one",
	"pop-batch":   "messages that were popped and acknowledged together",
}

func (s settings) sends() bool { return s.mode == "send" || s.mode == "transaction" }

// dueOf is when a message is to come: the numbers go over the whole range, and neighbours lie apart.
func (s settings) dueOf(number int64) int64 {
	if s.dueTo <= s.dueFrom {
		return s.dueFrom
	}
	const step = 611_953 // seconds' worth of milliseconds and a prime
	return s.dueFrom + number*step%(s.dueTo-s.dueFrom)
}

// worker is one connection.
type worker interface {
	run(end time.Time, messages int64) error
	found() *tally
}

func main() {
	var s settings
	flag.StringVar(&s.address, "address", "", "host:port of the broker")
	flag.StringVar(&s.mode, "mode", "send", "send, pull, drain, transaction, pop or pop-batch")
	flag.StringVar(&s.headers, "headers", "json", "json or binary")
	flag.IntVar(&s.connections, "connections", 8, "how many connections")
	flag.IntVar(&s.inFlight, "in-flight", 64, "requests in flight on each connection")
	flag.IntVar(&s.body, "body", 128, "bytes of a message's body")
	flag.StringVar(&s.topic, "topic", "BenchTopic", "the topic, which exists")
	flag.IntVar(&s.queues, "queues", 8, "how many queues the topic has")
	flag.StringVar(&s.broker, "broker", "broker-a", "the broker's name")
	flag.StringVar(&s.group, "group", "BenchGroup", "the producer's or consumer's group")
	flag.IntVar(&s.batch, "batch", 32, "messages that one pull asks for")
	flag.Float64Var(&s.seconds, "seconds", 3, "for how long new requests are sent")
	flag.Int64Var(&s.messages, "messages", 0, "stop after so many messages at the latest; 0 for no such limit")
	flag.Float64Var(&s.rate, "rate", 0, "send no more messages a second than this, over all connections; 0 for no limit")
	flag.IntVar(&s.delayLevel, "delay-level", 0, "send with this delay level; 0 for none")
	flag.Int64Var(&s.delayMs, "delay-ms", 0, "how long that level is, to tell how late messages are")
	flag.Int64Var(&s.dueFrom, "due-from", 0, "send for this time, in milliseconds since 1970; 0 for now")
	flag.Int64Var(&s.dueTo, "due-to", 0, "spread the times up to this one")
	flag.Int64Var(&s.invisibleMs, "invisible-ms", 600_000, "how long popped messages are hidden")
	offsets := flag.String("offsets", "", "where to begin in each queue, separated by commas")
	flag.Parse()
	for _, text := range strings.Split(*offsets, ",") {
		if offset, err := strconv.ParseInt(text, 10, 64); err == nil {
			s.offsets = append(s.offsets, offset)
		}
	}
	if err := s.check(); err != nil {
		fail(err)
	}
	result, err := run(s)
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func (s settings) check() error {
	switch {
	case modes[s.mode] == "":
		return fmt.Errorf("%q is no mode", s.mode)
	case s.headers != "json" && s.headers != "binary":
		return fmt.Errorf("headers are json or binary, not %q", s.headers)
	case s.connections < 1 || s.inFlight < 1 || s.inFlight > maxInFlight || s.queues < 1 || s.queues > 1<<16:
		return fmt.Errorf("connections, in-flight and queues are at least 1, in-flight at most %d", maxInFlight)
	case s.mode == "drain" && (len(s.offsets) != s.queues || s.inFlight != s.queues || s.connections != 1):
		return fmt.Errorf("to drain takes one connection, and an offset and a request in flight for each queue")
	case s.headers == "binary" && s.mode != "send" && s.mode != "pull":
		return fmt.Errorf("only what is sent and pulled can have binary headers")
	case s.batch > mostPopped && (s.mode == "pop" || s.mode == "pop-batch"):
		return fmt.Errorf("a pop asks for %d messages at most", mostPopped)
	case s.body < 1 || s.body > 4<<20 || s.batch < 1:
		return fmt.Errorf("a body has between 1 byte and 4 MiB, a batch at least one message")
	}
	return nil
}

// result is what a run found out.
type result struct {
	Messages int64   `json:"messages"`
	Requests int64   `json:"requests"`
	Failures int64   `json:"failures"`
	Failure  string  `json:"failure,omitempty"`
	Seconds  float64 `json:"seconds"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	P999     float64 `json:"p999_us"`
	Max      float64 `json:"max_us"`

	LateP50 float64 `json:"late_p50_us,omitempty"`
	LateP99 float64 `json:"late_p99_us,omitempty"`
	LateMax float64 `json:"late_max_us,omitempty"`
	Early   int64   `json:"early,omitempty"`
	FirstMs int64   `json:"first_ms,omitempty"`
	LastMs  int64   `json:"last_ms,omitempty"`
}

func run(s settings) (*result, error) {
	lanes := make([]worker, s.connections)
	for number := range lanes {
		connection, err := net.Dial("tcp", s.address)
		if err != nil {
			return nil, err
		}
		defer connection.Close()
		if s.mode == "pop" || s.mode == "pop-batch" {
			lanes[number] = newPopLane(s, connection)
		} else {
			lanes[number] = newLane(s, number, connection)
		}
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return nil, fmt.Errorf("nobody said go: %w", err)
	}
	start := time.Now()
	end := start.Add(time.Duration(s.seconds * float64(time.Second)))
	errors := make([]error, len(lanes))
	var working sync.WaitGroup
	for number, each := range lanes {
		working.Add(1)
		go func(number int, each worker) {
			defer working.Done()
			errors[number] = each.run(end, share(s.messages, s.connections, number))
		}(number, each)
	}
	working.Wait()
	var sum tally
	for number, each := range lanes {
		if errors[number] != nil {
			return nil, fmt.Errorf("connection %d: %w", number, errors[number])
		}
		sum.merge(each.found())
	}
	// What comes after the last message, like a pop that waits for one more, is not their time.
	total := &result{
		Messages: sum.messages, Requests: sum.requests, Failures: sum.failures, Failure: sum.failure,
		Seconds: float64(max64(int64(sum.last.Sub(start)), 0)) / float64(time.Second),
		P50:     sum.latencies.quantile(0.50), P99: sum.latencies.quantile(0.99),
		P999: sum.latencies.quantile(0.999), Max: sum.latencies.quantile(1),
		Early: sum.early, FirstMs: sum.firstMs, LastMs: sum.lastMs,
	}
	if sum.lateness.total > 0 {
		total.LateP50, total.LateP99 = sum.lateness.quantile(0.50), sum.lateness.quantile(0.99)
		total.LateMax = sum.lateness.quantile(1)
	}
	return total, nil
}

// share is one connection's part of a number of messages; -1 if there is no limit.
func share(messages int64, connections, number int) int64 {
	if messages == 0 {
		return -1
	}
	part := messages / int64(connections)
	if int64(number) < messages%int64(connections) {
		part++
	}
	return part
}
