package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// load is how many messages were sent or given to a consumer in how many seconds.
type load struct {
	Messages int64   `json:"messages"`
	Failures int64   `json:"failures"`
	Failure  string  `json:"failure"`
	Seconds  float64 `json:"seconds"`
}

// counter is a push consumer that counts what it is given.
type counter struct {
	rocketmq.PushConsumer
	messages atomic.Int64
	first    atomic.Int64
	last     atomic.Int64
}

// sendFor sends messages for some seconds, with so many goroutines that wait for each answer.
func (p *peer) sendFor(wanted *request) (*load, error) {
	sending, found := p.producers[wanted.Name]
	if !found {
		return nil, fmt.Errorf("no producer %q", wanted.Name)
	}
	var messages, failures atomic.Int64
	var failure atomic.Value
	body := make([]byte, wanted.Size)
	for at := range body {
		body[at] = byte('a' + at%26)
	}
	start := time.Now()
	end := start.Add(time.Duration(wanted.Seconds * float64(time.Second)))
	var working sync.WaitGroup
	for number := 0; number < wanted.Workers; number++ {
		working.Add(1)
		go func() {
			defer working.Done()
			for time.Now().Before(end) {
				message := primitive.NewMessage(wanted.Topic, body)
				message.WithTag("TagA")
				if _, err := sending.SendSync(context.Background(), message); err != nil {
					failures.Add(1)
					failure.CompareAndSwap(nil, err.Error())
				} else {
					messages.Add(1)
				}
			}
		}()
	}
	working.Wait()
	why, _ := failure.Load().(string)
	return &load{messages.Load(), failures.Load(), why, time.Since(start).Seconds()}, nil
}

func (p *peer) startCounter(wanted *request) error {
	counting := &counter{}
	made, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(primitive.NamesrvAddr{p.nameServer}),
		consumer.WithGroupName(wanted.Group),
		consumer.WithInstance(wanted.Name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	counting.PushConsumer = made
	if err := made.Subscribe(wanted.Topic, wanted.filter(), counting.consume); err != nil {
		return err
	}
	if err := made.Start(); err != nil {
		return err
	}
	p.counters[wanted.Name] = counting
	p.open[wanted.Name] = made
	return nil
}

func (c *counter) consume(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	now := time.Now().UnixNano()
	c.first.CompareAndSwap(0, now)
	c.last.Store(now)
	c.messages.Add(int64(len(messages)))
	return consumer.ConsumeSuccess, nil
}

// counted is what a counter was given, once that is enough or the time is up; the seconds are from the first to the last.
func (p *peer) counted(wanted *request) (*load, error) {
	counting, found := p.counters[wanted.Name]
	if !found {
		return nil, fmt.Errorf("no counter %q", wanted.Name)
	}
	deadline := time.Now().Add(time.Duration(wanted.Seconds * float64(time.Second)))
	for counting.messages.Load() < int64(wanted.Count) && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	seconds := time.Duration(counting.last.Load() - counting.first.Load()).Seconds()
	return &load{Messages: counting.messages.Load(), Seconds: seconds}, nil
}
