package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// incoming is a message as the client hands it to its user.
type incoming struct {
	Topic          string            `json:"topic"`
	Body           []byte            `json:"body"`
	Tag            string            `json:"tag"`
	Keys           string            `json:"keys"`
	QueueID        int               `json:"queueId"`
	QueueOffset    int64             `json:"queueOffset"`
	MessageID      string            `json:"messageId"`
	OffsetID       string            `json:"offsetId"`
	ReconsumeTimes int32             `json:"reconsumeTimes"`
	SystemFlag     int32             `json:"systemFlag"`
	StoreHost      string            `json:"storeHost"`
	Properties     map[string]string `json:"properties"`
}

type pulled struct {
	Status    int        `json:"status"`
	NextBegin int64      `json:"nextBegin"`
	Minimum   int64      `json:"minimum"`
	Maximum   int64      `json:"maximum"`
	Messages  []incoming `json:"messages"`
}

// receiver is a push consumer and what it was given so far.
type receiver struct {
	rocketmq.PushConsumer
	mutex    sync.Mutex
	received []incoming
	failures map[string]int // by body: how many times to refuse it
	orderly  bool
}

type puller struct {
	rocketmq.PullConsumer
	topic string
}

func (p *peer) startConsumer(asked *request) error {
	receiving := &receiver{failures: asked.Failures, orderly: asked.Orderly}
	options := []consumer.Option{
		consumer.WithNameServer(primitive.NamesrvAddr{p.nameServer}),
		consumer.WithGroupName(asked.Group),
		consumer.WithInstance(asked.Name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(asked.Orderly),
	}
	if asked.Model == "broadcast" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if asked.MaxTimes > 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(asked.MaxTimes))
	}
	if asked.BatchSize > 0 {
		options = append(options, consumer.WithConsumeMessageBatchMaxSize(asked.BatchSize))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	receiving.PushConsumer = made
	if err := made.Subscribe(asked.Topic, asked.filter(), receiving.consume); err != nil {
		return err
	}
	if err := made.Start(); err != nil {
		return err
	}
	p.consumers[asked.Name] = receiving
	p.open[asked.Name] = made
	return nil
}

func (r *request) filter() consumer.MessageSelector {
	if r.Type == "SQL92" {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: r.Expression}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: r.Expression}
}

func (r *receiver) consume(given context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	result := consumer.ConsumeSuccess
	for _, message := range messages {
		r.received = append(r.received, describe(message))
		if r.failures[string(message.Body)] > 0 {
			r.failures[string(message.Body)]--
			result = consumer.ConsumeRetryLater
		}
	}
	if result == consumer.ConsumeRetryLater {
		if r.orderly {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		if how, found := primitive.GetConcurrentlyCtx(given); found {
			how.DelayLevelWhenNextConsume = 1 // a second, the shortest there is
		}
	}
	return result, nil
}

// take hands over what a consumer was given, once that is enough or the time is up.
func (p *peer) take(asked *request) ([]incoming, error) {
	receiving, found := p.consumers[asked.Name]
	if !found {
		return nil, fmt.Errorf("no consumer %q", asked.Name)
	}
	deadline := time.Now().Add(time.Duration(asked.Seconds * float64(time.Second)))
	for {
		receiving.mutex.Lock()
		if len(receiving.received) >= asked.Count || time.Now().After(deadline) {
			taken := receiving.received
			receiving.received = nil
			receiving.mutex.Unlock()
			return taken, nil
		}
		receiving.mutex.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *peer) startPuller(asked *request) error {
	made, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer(primitive.NamesrvAddr{p.nameServer}),
		consumer.WithGroupName(asked.Group),
		consumer.WithInstance(asked.Name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithMaxReconsumeTimes(-1),
	)
	if err != nil {
		return err
	}
	if err := made.Subscribe(asked.Topic, asked.filter()); err != nil {
		return err
	}
	if err := made.Start(); err != nil {
		return err
	}
	p.pullers[asked.Name] = &puller{made, asked.Topic}
	p.open[asked.Name] = made
	return nil
}

func (p *peer) pullFrom(asked *request) (*pulled, error) {
	pulling, queue, err := p.pullerOf(asked)
	if err != nil {
		return nil, err
	}
	result, err := pulling.PullFrom(context.Background(), queue, asked.Offset, asked.Count)
	if err != nil {
		return nil, err
	}
	told := &pulled{int(result.Status), result.NextBeginOffset, result.MinOffset, result.MaxOffset, nil}
	for _, message := range result.GetMessageExts() {
		told.Messages = append(told.Messages, describe(message))
	}
	return told, nil
}

func (p *peer) commit(asked *request) error {
	pulling, queue, err := p.pullerOf(asked)
	if err != nil {
		return err
	}
	if err := pulling.UpdateOffset(queue, asked.Offset); err != nil {
		return err
	}
	return pulling.PersistOffset(context.Background(), pulling.topic)
}

func (p *peer) committed(asked *request) (int64, error) {
	pulling, queue, err := p.pullerOf(asked)
	if err != nil {
		return 0, err
	}
	return pulling.CurrentOffset(queue)
}

func (p *peer) pullerOf(asked *request) (*puller, *primitive.MessageQueue, error) {
	pulling, found := p.pullers[asked.Name]
	if !found {
		return nil, nil, fmt.Errorf("no pull consumer %q", asked.Name)
	}
	queue := &primitive.MessageQueue{Topic: pulling.topic, BrokerName: asked.Broker, QueueId: asked.Queue}
	return pulling, queue, nil
}

func describe(message *primitive.MessageExt) incoming {
	return incoming{
		Topic:          message.Topic,
		Body:           message.Body,
		Tag:            message.GetTags(),
		Keys:           message.GetKeys(),
		QueueID:        message.Queue.QueueId,
		QueueOffset:    message.QueueOffset,
		MessageID:      message.MsgId,
		OffsetID:       message.OffsetMsgId,
		ReconsumeTimes: message.ReconsumeTimes,
		SystemFlag:     message.SysFlag,
		StoreHost:      message.StoreHost,
		Properties:     message.GetProperties(),
	}
}
