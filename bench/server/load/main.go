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
}

func main() {
	var s settings
	flag.StringVar(&s.address, "address", "", "host:port of the broker")
	flag.StringVar(&s.mode, "mode", "send", "send or pull")
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
	flag.Parse()
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
	case s.mode != "send" && s.mode != "pull":
		return fmt.Errorf("the mode is send or pull, not %q", s.mode)
	case s.headers != "json" && s.headers != "binary":
		return fmt.Errorf("headers are json or binary, not %q", s.headers)
	case s.connections < 1 || s.inFlight < 1 || s.inFlight > maxInFlight || s.queues < 1 || s.queues > 1<<16:
		return fmt.Errorf("connections, in-flight and queues are at least 1, in-flight at most %d", maxInFlight)
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
}

func run(s settings) (*result, error) {
	lanes := make([]*lane, s.connections)
	for number := range lanes {
		connection, err := net.Dial("tcp", s.address)
		if err != nil {
			return nil, err
		}
		defer connection.Close()
		lanes[number] = newLane(s, number, connection)
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
		go func(number int, each *lane) {
			defer working.Done()
			errors[number] = each.run(end, share(s.messages, s.connections, number))
		}(number, each)
	}
	working.Wait()
	total := &result{Seconds: time.Since(start).Seconds()}
	var latencies histogram
	for number, each := range lanes {
		if errors[number] != nil {
			return nil, fmt.Errorf("connection %d: %w", number, errors[number])
		}
		total.Messages += each.messages
		total.Requests += each.requests
		total.Failures += each.failures
		if total.Failure == "" {
			total.Failure = each.failure
		}
		latencies.merge(&each.latencies)
	}
	total.P50 = latencies.quantile(0.50)
	total.P99 = latencies.quantile(0.99)
	total.P999 = latencies.quantile(0.999)
	total.Max = latencies.quantile(1)
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
