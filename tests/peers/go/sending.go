package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// outgoing is a message to send. Bodies travel as base64, for they are bytes.
type outgoing struct {
	Topic      string            `json:"topic"`
	Body       []byte            `json:"body"`
	Tag        string            `json:"tag"`
	Keys       []string          `json:"keys"`
	Sharding   string            `json:"sharding"`
	Delay      int               `json:"delay"`
	Queue      *int              `json:"queue"`
	Broker     string            `json:"broker"`
	Properties map[string]string `json:"properties"`
}

type sent struct {
	Status      int    `json:"status"`
	MessageID   string `json:"messageId"`
	OffsetID    string `json:"offsetId"`
	Broker      string `json:"broker"`
	QueueID     int    `json:"queueId"`
	QueueOffset int64  `json:"queueOffset"`
	Region      string `json:"region"`
	TraceOn     bool   `json:"traceOn"`
}

type sender struct{ rocketmq.Producer }

type queueOfTopic struct {
	Broker  string `json:"broker"`
	QueueID int    `json:"queueId"`
}

func (p *peer) startProducer(asked *request) error {
	options := []producer.Option{
		producer.WithNameServer(primitive.NamesrvAddr{p.nameServer}),
		producer.WithGroupName(asked.Group),
		producer.WithInstanceName(asked.Name),
		producer.WithRetry(0),
	}
	switch asked.Selector {
	case "hash":
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	case "manual":
		options = append(options, producer.WithQueueSelector(producer.NewManualQueueSelector()))
	}
	started, err := rocketmq.NewProducer(options...)
	if err != nil {
		return err
	}
	p.producers[asked.Name] = &sender{started}
	p.open[asked.Name] = started
	return started.Start()
}

func (p *peer) send(asked *request) (interface{}, error) {
	sending, found := p.producers[asked.Name]
	if !found {
		return nil, fmt.Errorf("no producer %q", asked.Name)
	}
	messages := make([]*primitive.Message, 0, len(asked.Messages))
	for _, each := range asked.Messages {
		messages = append(messages, each.message())
	}
	if asked.Batch {
		result, err := sending.SendSync(context.Background(), messages...)
		if err != nil {
			return nil, err
		}
		return []sent{tell(result)}, nil
	}
	switch asked.Mode {
	case "oneway":
		for _, message := range messages {
			if err := sending.SendOneWay(context.Background(), message); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "async":
		return sending.all(messages)
	}
	results := make([]sent, 0, len(messages))
	for _, message := range messages {
		result, err := sending.SendSync(context.Background(), message)
		if err != nil {
			return nil, err
		}
		results = append(results, tell(result))
	}
	return results, nil
}

// all sends every message before the first answer is waited for.
func (s *sender) all(messages []*primitive.Message) ([]sent, error) {
	results := make([]sent, len(messages))
	failures := make([]error, len(messages))
	var waiting sync.WaitGroup
	for index, message := range messages {
		index := index
		waiting.Add(1)
		var once sync.Once // the client calls back twice when a connection breaks
		done := func(_ context.Context, result *primitive.SendResult, err error) {
			once.Do(func() {
				if err != nil {
					failures[index] = err
				} else {
					results[index] = tell(result)
				}
				waiting.Done()
			})
		}
		if err := s.SendAsync(context.Background(), done, message); err != nil {
			return nil, err
		}
	}
	waiting.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (o *outgoing) message() *primitive.Message {
	message := primitive.NewMessage(o.Topic, o.Body)
	for key, value := range o.Properties {
		message.WithProperty(key, value)
	}
	if o.Tag != "" {
		message.WithTag(o.Tag)
	}
	if len(o.Keys) > 0 {
		message.WithKeys(o.Keys)
	}
	if o.Sharding != "" {
		message.WithShardingKey(o.Sharding)
	}
	if o.Delay > 0 {
		message.WithDelayTimeLevel(o.Delay)
	}
	if o.Queue != nil {
		message.Queue = &primitive.MessageQueue{Topic: o.Topic, BrokerName: o.Broker, QueueId: *o.Queue}
	}
	return message
}

func tell(result *primitive.SendResult) sent {
	return sent{
		Status:      int(result.Status),
		MessageID:   result.MsgID,
		OffsetID:    result.OffsetMsgID,
		Broker:      result.MessageQueue.BrokerName,
		QueueID:     result.MessageQueue.QueueId,
		QueueOffset: result.QueueOffset,
		Region:      result.RegionID,
		TraceOn:     result.TraceOn,
	}
}

func (p *peer) createTopic(asked *request) error {
	tools, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{p.nameServer})))
	if err != nil {
		return err
	}
	return tools.CreateTopic(context.Background(),
		admin.WithTopicCreate(asked.Topic), admin.WithBrokerAddrCreate(asked.Broker),
		admin.WithReadQueueNums(asked.Queues), admin.WithWriteQueueNums(asked.Queues), admin.WithPerm(asked.Perm))
}

func (p *peer) deleteTopic(asked *request) error {
	tools, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{p.nameServer})))
	if err != nil {
		return err
	}
	return tools.DeleteTopic(context.Background(),
		admin.WithTopicDelete(asked.Topic), admin.WithBrokerAddrDelete(asked.Broker))
}

func (p *peer) topics() ([]string, error) {
	tools, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{p.nameServer})))
	if err != nil {
		return nil, err
	}
	list, err := tools.FetchAllTopicList(context.Background())
	if err != nil {
		return nil, err
	}
	return list.TopicList, nil
}

func (p *peer) publishQueues(topic string) ([]queueOfTopic, error) {
	tools, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{p.nameServer})))
	if err != nil {
		return nil, err
	}
	queues, err := tools.FetchPublishMessageQueues(context.Background(), topic)
	if err != nil {
		return nil, err
	}
	told := make([]queueOfTopic, 0, len(queues))
	for _, queue := range queues {
		told = append(told, queueOfTopic{queue.BrokerName, queue.QueueId})
	}
	return told, nil
}

func (p *peer) groups(broker string) (interface{}, error) {
	tools, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{p.nameServer})))
	if err != nil {
		return nil, err
	}
	found, err := tools.GetAllSubscriptionGroup(context.Background(), broker, 3*time.Second)
	if err != nil {
		return nil, err
	}
	return found.SubscriptionGroupTable, nil
}
