// Apache's Go client as a peer: producers, consumers and the admin part in one process that does what it is told.
//
// Argument: the name server's address. A request is a line of standard input, an object with "do" and its
// arguments; its answer is a line of standard output, an object with either "answer" or "error". Requests are
// served one after the other.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

type request struct {
	Do   string `json:"do"`
	Name string `json:"name"`

	Topic      string         `json:"topic"`
	Group      string         `json:"group"`
	Broker     string         `json:"broker"`
	Queues     int            `json:"queues"`
	Perm       int            `json:"perm"`
	Selector   string         `json:"selector"`
	Mode       string         `json:"mode"`
	Batch      bool           `json:"batch"`
	Messages   []outgoing     `json:"messages"`
	Model      string         `json:"model"`
	Orderly    bool           `json:"orderly"`
	Type       string         `json:"type"`
	Expression string         `json:"expression"`
	Failures   map[string]int `json:"failures"`
	MaxTimes   int32          `json:"maxTimes"`
	BatchSize  int            `json:"batchSize"`
	Count      int            `json:"count"`
	Seconds    float64        `json:"seconds"`
	Queue      int            `json:"queue"`
	Offset     int64          `json:"offset"`
	Size       int            `json:"size"`
	Workers    int            `json:"workers"`
}

// closer ends what a request has opened under a name.
type closer interface{ Shutdown() error }

// peer keeps what is open, by name.
type peer struct {
	nameServer string
	open       map[string]closer
	producers  map[string]*sender
	consumers  map[string]*receiver
	pullers    map[string]*puller
	counters   map[string]*counter
}

func main() {
	p := &peer{
		nameServer: os.Args[1],
		open:       map[string]closer{},
		producers:  map[string]*sender{},
		consumers:  map[string]*receiver{},
		pullers:    map[string]*puller{},
		counters:   map[string]*counter{},
	}
	questions := bufio.NewReaderSize(os.Stdin, 1<<20)
	answers := bufio.NewWriter(os.Stdout)
	for {
		line, err := questions.ReadBytes('\n')
		if err != nil {
			return
		}
		encoded, err := json.Marshal(p.reply(line))
		if err != nil {
			encoded = []byte(`{"error": "the answer cannot be written as JSON"}`)
		}
		answers.Write(append(encoded, '\n'))
		answers.Flush()
	}
}

func (p *peer) reply(line []byte) map[string]interface{} {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return map[string]interface{}{"error": err.Error()}
	}
	answer, err := p.answer(&asked)
	if err != nil {
		return map[string]interface{}{"error": err.Error()}
	}
	return map[string]interface{}{"answer": answer}
}

func (p *peer) answer(asked *request) (interface{}, error) {
	switch asked.Do {
	case "createTopic":
		return nil, p.createTopic(asked)
	case "deleteTopic":
		return nil, p.deleteTopic(asked)
	case "topics":
		return p.topics()
	case "publishQueues":
		return p.publishQueues(asked.Topic)
	case "groups":
		return p.groups(asked.Broker)
	case "producer":
		return nil, p.startProducer(asked)
	case "send":
		return p.send(asked)
	case "consumer":
		return nil, p.startConsumer(asked)
	case "take":
		return p.take(asked)
	case "puller":
		return nil, p.startPuller(asked)
	case "pullFrom":
		return p.pullFrom(asked)
	case "commit":
		return nil, p.commit(asked)
	case "committed":
		return p.committed(asked)
	case "sendFor":
		return p.sendFor(asked)
	case "counter":
		return nil, p.startCounter(asked)
	case "counted":
		return p.counted(asked)
	case "close":
		return nil, p.close(asked.Name)
	}
	return nil, fmt.Errorf("unknown request %q", asked.Do)
}

func (p *peer) close(name string) error {
	opened, found := p.open[name]
	if !found {
		return fmt.Errorf("nothing is open under the name %q", name)
	}
	delete(p.open, name)
	return opened.Shutdown()
}
