// A raw load for servers that speak RocketMQ's remoting protocol, Kafka's or AMQP: connections with a fixed number of
// requests in flight each, and nothing between the frames and the sockets that could be the slower side.
//
// It connects, says "ready" on its standard output, waits for a line on its standard input, works, and writes
// one JSON object. So the parent process can read the server's processor time at the very beginning and end.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Settings of one run, as the command line gives them.
type settings struct {
	address     string
	protocol    string
	mode        string
	headers     string
	connections int
	inFlight    int
	body        int
	topic       string
	queues      int
	topics      int
	broker      string
	group       string
	batch       int
	seconds     float64
	settle      time.Duration
	messages    int64
	rate        float64
	delayLevel  int
	delayMs     int64
	dueFrom     int64
	dueTo       int64
	invisibleMs int64
	holdMs      int
	followers   int
	seriesStep  time.Duration
	fetchBytes  int
	persistent  bool
	tagEvery    int64
	expression  string
	offsets     []int64
	accessKey   string
	secretKey   string
	tls         bool
	flood       string
}

// modes, and what each of them counts.
var modes = map[string]string{
	"send":          "messages that were taken; with -due-from or -delay-level they wait for their time",
	"send-batch":    "messages that were taken, -batch in each request",
	"pull":          "messages of the topic, again and again",
	"drain":         "messages behind -offsets, once, and how late they were",
	"transaction":   "half messages that were sent and committed",
	"pop":           "messages that were popped and acknowledged one by one",
	"pop-batch":     "messages that were popped and acknowledged together",
	"steady":        "messages that were taken, sent at -rate whether or not there are answers",
	"longpoll":      "messages that -followers got, which were sent as in steady",
	"commit":        "consumer offsets that were committed, each of which is answered",
	"commit-oneway": "consumer offsets that were committed, one in -batch of which is answered",
	"query-offset":  "consumer offsets that were asked for",
	"heartbeat":     "heartbeats of clients that the broker knows, a connection each",
	"mixed":         "messages that -followers got, which were sent as in send",
	"flood":         "connections that -flood had",
}

// sends is true if the workers send messages, false if they read them.
func (s settings) sends() bool {
	return s.mode == "send" || s.mode == "send-batch" || s.mode == "transaction" || s.mode == "mixed"
}

// steady is whether messages are sent at their times.
func (s settings) steady() bool { return s.mode == "steady" || s.mode == "longpoll" }

// stamps is whether messages are followed, and say when they were sent.
func (s settings) stamps() bool { return s.mode == "longpoll" || s.mode == "mixed" }

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

// connectors make the workers of a run, for each protocol.
var connectors = map[string]func(settings) ([]worker, *meeting, error){
	"rocketmq": connect, "kafka": connectKafka, "amqp": connectAMQP,
}

func main() {
	var s settings
	flag.StringVar(&s.address, "address", "", "host:port of the broker; of several, separated by commas, each gets its share of connections")
	flag.StringVar(&s.mode, "mode", "send", "send, send-batch, pull, drain, transaction, pop, pop-batch, steady, longpoll, mixed, commit, commit-oneway, query-offset, heartbeat or flood")
	flag.StringVar(&s.protocol, "protocol", "rocketmq", "rocketmq; or kafka or amqp, to send and pull only, and kafka to send-batch")
	flag.StringVar(&s.headers, "headers", "json", "json or binary, as the Java client writes them, or those of another client: go, node, cpp")
	flag.IntVar(&s.connections, "connections", 8, "how many connections")
	flag.IntVar(&s.inFlight, "in-flight", 64, "requests in flight on each connection")
	flag.IntVar(&s.body, "body", 128, "bytes of a message's body")
	flag.StringVar(&s.topic, "topic", "BenchTopic", "the topic, which exists")
	flag.IntVar(&s.queues, "queues", 8, "how many queues the topic has")
	flag.IntVar(&s.topics, "topics", 1, "send to so many topics, with -00, -01 and so on behind the name")
	flag.StringVar(&s.broker, "broker", "broker-a", "the broker's name, or those of several")
	flag.StringVar(&s.group, "group", "BenchGroup", "the producer's or consumer's group")
	flag.IntVar(&s.batch, "batch", 32, "messages that one pull asks for, or one request of send-batch sends")
	flag.Float64Var(&s.seconds, "seconds", 3, "for how long new requests are sent")
	flag.DurationVar(&s.settle, "settle", 0, "in longpoll and mixed, send nothing for so long, until the followers hold their pulls")
	flag.Int64Var(&s.messages, "messages", 0, "stop after so many messages at the latest; 0 for no such limit")
	flag.Float64Var(&s.rate, "rate", 0, "send no more messages a second than this, over all connections; 0 for no limit")
	flag.IntVar(&s.delayLevel, "delay-level", 0, "send with this delay level; 0 for none")
	flag.Int64Var(&s.delayMs, "delay-ms", 0, "how long that level is, to tell how late messages are")
	flag.Int64Var(&s.dueFrom, "due-from", 0, "send for this time, in milliseconds since 1970; 0 for now")
	flag.Int64Var(&s.dueTo, "due-to", 0, "spread the times up to this one")
	flag.Int64Var(&s.invisibleMs, "invisible-ms", 600_000, "how long popped messages are hidden")
	flag.IntVar(&s.followers, "followers", 1, "connections that hold pulls for what is sent, in longpoll and mixed")
	flag.DurationVar(&s.seriesStep, "series", 0, "also say the latencies of each stretch of this length, such as 100ms")
	flag.IntVar(&s.fetchBytes, "fetch-bytes", 0, "bytes that one request to Kafka asks for; 0 for -batch messages that were sent one by one")
	flag.BoolVar(&s.persistent, "persistent", true, "send messages by AMQP that outlive the server")
	flag.Int64Var(&s.tagEvery, "tag-every", 1, "send one of so many messages with TagA, and the others with TagB")
	flag.StringVar(&s.expression, "expression", "*", "pull messages with these tags")
	flag.StringVar(&s.flood, "flood", "idle", "what connections of mode flood do: idle, deaf, connects (-rate of them a second) or slow")
	flag.StringVar(&s.accessKey, "access-key", "", "sign requests as this user")
	flag.StringVar(&s.secretKey, "secret-key", "", "the password of that user")
	flag.BoolVar(&s.tls, "tls", false, "encrypt connections; the certificate of the server is not verified")
	offsets := flag.String("offsets", "", "where to begin in each queue, and where to begin again, separated by commas")
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
		return fmt.Errorf("unknown mode %q", s.mode)
	case connectors[s.protocol] == nil:
		return fmt.Errorf("unknown protocol %q", s.protocol)
	case s.protocol != "rocketmq" && s.mode != "send" && s.mode != "pull" && (s.protocol != "kafka" || s.mode != "send-batch"):
		return fmt.Errorf("%s does not know how to %s", s.protocol, s.mode)
	case s.fetchBytes < 0 || s.fetchBytes > maxFrame/2:
		return fmt.Errorf("a request to Kafka asks for %d bytes at most", maxFrame/2)
	case s.protocol == "amqp" && (s.body > mostAMQPBody || s.mode == "pull" && (s.connections > s.queues || s.inFlight*s.batch > 1<<16-1)):
		return fmt.Errorf("by AMQP a body has %d bytes at most, and a queue one consumer with %d messages at most", mostAMQPBody, 1<<16-1)
	case s.headers != "json" && s.headers != "binary" && shapes[s.headers] == nil:
		return fmt.Errorf("headers are json, binary, go, node or cpp, not %q", s.headers)
	case s.connections < 1 || s.inFlight < 1 || s.inFlight > maxInFlight || s.queues < 1 || s.queues > 1<<16:
		return fmt.Errorf("connections, in-flight and queues are at least 1, in-flight at most %d", maxInFlight)
	case s.topics < 1 || s.topics > 1<<16 || s.topics > 1 && s.mode != "send" && s.mode != "send-batch":
		return fmt.Errorf("only sends go to several topics")
	case s.mode == "pull" && len(s.offsets) != 0 && len(s.offsets) != s.queues:
		return fmt.Errorf("pulls begin at 0, or at an offset for each queue")
	case s.mode == "drain" && (len(s.offsets) != s.queues || s.inFlight != s.queues || s.connections != 1):
		return fmt.Errorf("to drain takes one connection, and an offset and a request in flight for each queue")
	case s.mode == "flood" && (floods[s.flood] == nil || s.flood == "connects" && s.rate <= 0):
		return fmt.Errorf("a flood is idle, deaf, connects at a rate, or slow, not %q", s.flood)
	case s.steady() && s.rate <= 0:
		return fmt.Errorf("sending at times takes a rate")
	case s.settle < 0 || s.settle > 0 && !s.stamps():
		return fmt.Errorf("only senders of what is followed wait for their followers")
	case s.stamps() && (len(s.offsets) != s.queues || s.body < stampSize || s.followers < 1 || s.followers > s.queues):
		return fmt.Errorf("to follow takes an offset for each queue, bodies of %d bytes, and at most a follower for each queue", stampSize)
	case len(s.addresses()) != len(strings.Split(s.broker, ",")) || s.stamps() && len(s.addresses()) > 1:
		return fmt.Errorf("every address takes the name of its broker, and only one broker can be followed")
	case s.mode == "heartbeat" && s.inFlight != 1:
		return fmt.Errorf("a client has one heartbeat in flight")
	case s.headers != "json" && s.mode != "send" && s.mode != "pull":
		return fmt.Errorf("only sends and pulls can have other headers than json")
	case s.headers == "node" && s.mode == "pull":
		return fmt.Errorf("offsets with leading zeros cannot be written without quotes")
	case s.batch > mostPopped && (s.mode == "pop" || s.mode == "pop-batch"):
		return fmt.Errorf("a pop asks for %d messages at most", mostPopped)
	case s.tagEvery < 1 || s.tagEvery > 1 && s.mode != "send":
		return fmt.Errorf("only single messages are sent with different tags")
	case s.body < 1 || s.body > 4<<20 || s.batch < 1:
		return fmt.Errorf("a body has between 1 byte and 4 MiB, a batch at least one message")
	}
	return s.checkSecurity()
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

	// Of what was sent, where the messages above are those that were followed.
	Sent        int64   `json:"sent,omitempty"`
	SentSeconds float64 `json:"sent_seconds,omitempty"`
	SentP50     float64 `json:"sent_p50_us,omitempty"`
	SentP99     float64 `json:"sent_p99_us,omitempty"`
	SentP999    float64 `json:"sent_p999_us,omitempty"`

	StartMs int64   `json:"start_ms"`
	Used    float64 `json:"used_seconds"`
	Series  []point `json:"series,omitempty"`
}

func run(s settings) (*result, error) {
	workers, met, err := connectors[s.protocol](s)
	if err != nil {
		return nil, err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return nil, fmt.Errorf("standard input ended before the start signal: %w", err)
	}
	used := processorSeconds()
	start := time.Now()
	end := start.Add(time.Duration(s.seconds * float64(time.Second)))
	errors := make([]error, len(workers))
	var working sync.WaitGroup
	for number, each := range workers {
		working.Add(1)
		go func(number int, each worker) {
			defer working.Done()
			errors[number] = each.run(end, share(s.messages, s.connections, number))
		}(number, each)
	}
	working.Wait()
	var sum, sends tally
	for number, each := range workers {
		if errors[number] != nil {
			return nil, fmt.Errorf("connection %d: %w", number, errors[number])
		}
		if _, is := each.(sender); is {
			sends.merge(each.found())
		} else {
			sum.merge(each.found())
		}
	}
	// What comes after the last message, like a pop that waits for one more, is not their time.
	total := &result{
		Messages: sum.messages, Requests: sum.requests, Failures: sum.failures, Failure: sum.failure,
		Seconds: float64(max64(int64(sum.last.Sub(start)), 0)) / float64(time.Second),
		P50:     sum.latencies.quantile(0.50), P99: sum.latencies.quantile(0.99),
		P999: sum.latencies.quantile(0.999), Max: sum.latencies.quantile(1),
		Early: sum.early, FirstMs: sum.firstMs, LastMs: sum.lastMs,
		StartMs: start.UnixMilli(), Used: processorSeconds() - used, Series: sum.series.points(),
	}
	if met != nil {
		total.addSends(&sends, start, met.lost())
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
