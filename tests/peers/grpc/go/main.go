// Go gRPC client as a peer: producers and consumers in one process that does what a line of JSON says.
//
// Argument: the endpoints. A request is a line of standard input, an object with "do" and its arguments; its answer
// is a line of standard output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

type filter struct {
	Expression string `json:"expression"`
	SQL        bool   `json:"sql"`
}

type outgoing struct {
	Topic      string            `json:"topic"`
	Body       []byte            `json:"body"`
	Tag        string            `json:"tag"`
	Keys       []string          `json:"keys"`
	Group      string            `json:"group"`
	DelayMs    int64             `json:"delayMs"`
	Properties map[string]string `json:"properties"`
}

type request struct {
	Do        string          `json:"do"`
	Name      string          `json:"name"`
	Topic     string          `json:"topic"`
	Topics    json.RawMessage `json:"topics"`
	Check     string          `json:"check"`
	Messages  []outgoing      `json:"messages"`
	Message   json.RawMessage `json:"message"`
	Handle    string          `json:"handle"`
	Action    string          `json:"action"`
	Group     string          `json:"group"`
	Seconds   float64         `json:"seconds"`
	Count     int             `json:"count"`
	Invisible int             `json:"invisible"`
	Ids       []string        `json:"ids"`
	Failures  map[string]int  `json:"failures"`
}

type described struct {
	Topic      string            `json:"topic"`
	Body       []byte            `json:"body"`
	Tag        *string           `json:"tag"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
	MessageID  string            `json:"messageId"`
	Attempt    int32             `json:"attempt"`
	Group      *string           `json:"group"`
}

type listener struct {
	mutex    sync.Mutex
	received []described
	failures map[string]int
}

var (
	producers = map[string]rmq.Producer{}
	simples   = map[string]rmq.SimpleConsumer{}
	pushes    = map[string]rmq.PushConsumer{}
	listeners = map[string]*listener{}
	messages  = map[string]*rmq.MessageView{}
)

func config(group string) *rmq.Config {
	return &rmq.Config{Endpoint: os.Args[1], ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func filters(raw json.RawMessage) (map[string]*rmq.FilterExpression, error) {
	var wanted map[string]filter
	err := json.Unmarshal(raw, &wanted)
	found := map[string]*rmq.FilterExpression{}
	for topic, one := range wanted {
		kind := rmq.TAG
		if one.SQL {
			kind = rmq.SQL92
		}
		found[topic] = rmq.NewFilterExpressionWithType(one.Expression, kind)
	}
	return found, err
}

func describe(view *rmq.MessageView) described {
	return described{
		view.GetTopic(), view.GetBody(), view.GetTag(), view.GetKeys(), view.GetProperties(), view.GetMessageId(),
		view.GetDeliveryAttempt(), view.GetMessageGroup(),
	}
}

func (wanted outgoing) made() *rmq.Message {
	message := &rmq.Message{Topic: wanted.Topic, Body: wanted.Body}
	if wanted.Tag != "" {
		message.SetTag(wanted.Tag)
	}
	if len(wanted.Keys) > 0 {
		message.SetKeys(wanted.Keys...)
	}
	if wanted.Group != "" {
		message.SetMessageGroup(wanted.Group)
	}
	if wanted.DelayMs > 0 {
		message.SetDelayTimestamp(time.Now().Add(time.Duration(wanted.DelayMs) * time.Millisecond))
	}
	for key, value := range wanted.Properties {
		message.AddProperty(key, value)
	}
	return message
}

func producer(one request) (any, error) {
	var topics []string
	if err := json.Unmarshal(one.Topics, &topics); err != nil {
		return nil, err
	}
	resolution := rmq.COMMIT
	if one.Check == "rollback" {
		resolution = rmq.ROLLBACK
	}
	checker := &rmq.TransactionChecker{Check: func(*rmq.MessageView) rmq.TransactionResolution { return resolution }}
	made, err := rmq.NewProducer(config(""), rmq.WithTopics(topics...), rmq.WithTransactionChecker(checker))
	if err == nil {
		err = made.Start()
	}
	producers[one.Name] = made
	return nil, err
}

func send(one request) (any, error) {
	found := []map[string]any{}
	for _, wanted := range one.Messages {
		sent, err := producers[one.Name].Send(context.Background(), wanted.made())
		if err != nil {
			return nil, err
		}
		found = append(found, map[string]any{
			"messageId": sent[0].MessageID, "recallHandle": sent[0].RecallHandle, "offset": sent[0].Offset,
		})
	}
	return found, nil
}

func transaction(one request) (any, error) {
	var wanted outgoing
	if err := json.Unmarshal(one.Message, &wanted); err != nil {
		return nil, err
	}
	begun := producers[one.Name].BeginTransaction()
	sent, err := producers[one.Name].SendWithTransaction(context.Background(), wanted.made(), begun)
	if err != nil {
		return nil, err
	}
	switch one.Action {
	case "commit":
		err = begun.Commit()
	case "rollback":
		err = begun.RollBack()
	}
	return sent[0].MessageID, err
}

func simple(one request) (any, error) {
	wanted, err := filters(one.Topics)
	if err != nil {
		return nil, err
	}
	made, err := rmq.NewSimpleConsumer(config(one.Group), rmq.WithSimpleSubscriptionExpressions(wanted),
		rmq.WithSimpleAwaitDuration(time.Duration(one.Seconds*float64(time.Second))))
	if err == nil {
		err = made.Start()
	}
	simples[one.Name] = made
	return nil, err
}

func receive(one request) (any, error) {
	invisible := time.Duration(one.Invisible) * time.Second
	views, err := simples[one.Name].Receive(context.Background(), int32(one.Count), invisible)
	if status, ok := rmq.AsErrRpcStatus(err); ok && status.Code == 40401 {
		// An empty receive is an error of this client.
		err = nil
	}
	found := []described{}
	for _, view := range views {
		messages[one.Name+" "+view.GetMessageId()] = view
		found = append(found, describe(view))
	}
	return found, err
}

func push(one request) (any, error) {
	wanted, err := filters(one.Topics)
	if err != nil {
		return nil, err
	}
	to := &listener{failures: one.Failures}
	listeners[one.Name] = to
	consume := func(view *rmq.MessageView) rmq.ConsumerResult {
		to.mutex.Lock()
		defer to.mutex.Unlock()
		to.received = append(to.received, describe(view))
		if body := string(view.GetBody()); to.failures[body] > 0 {
			to.failures[body]--
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}
	made, err := rmq.NewPushConsumer(config(one.Group), rmq.WithPushSubscriptionExpressions(wanted),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}))
	if err == nil {
		err = made.Start()
	}
	pushes[one.Name] = made
	return nil, err
}

func take(one request) (any, error) {
	to := listeners[one.Name]
	deadline := time.Now().Add(time.Duration(one.Seconds * float64(time.Second)))
	for {
		to.mutex.Lock()
		if len(to.received) >= one.Count || time.Now().After(deadline) {
			found := append([]described{}, to.received...)
			to.received = nil
			to.mutex.Unlock()
			return found, nil
		}
		to.mutex.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

func shutDown(name string) error {
	if one := producers[name]; one != nil {
		delete(producers, name)
		return one.GracefulStop()
	}
	if one := simples[name]; one != nil {
		delete(simples, name)
		return one.GracefulStop()
	}
	one := pushes[name]
	delete(pushes, name)
	return one.GracefulStop()
}

func serve(one request) (any, error) {
	switch one.Do {
	case "producer":
		return producer(one)
	case "send":
		return send(one)
	case "recall":
		return producers[one.Name].Recall(context.Background(), one.Topic, one.Handle)
	case "transaction":
		return transaction(one)
	case "simple":
		return simple(one)
	case "receive":
		return receive(one)
	case "ack":
		for _, id := range one.Ids {
			if err := simples[one.Name].Ack(context.Background(), messages[one.Name+" "+id]); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "hide":
		var id string
		if err := json.Unmarshal(one.Message, &id); err != nil {
			return nil, err
		}
		return nil, simples[one.Name].ChangeInvisibleDuration(messages[one.Name+" "+id],
			time.Duration(one.Seconds*float64(time.Second)))
	case "push":
		return push(one)
	case "take":
		return take(one)
	case "close":
		return nil, shutDown(one.Name)
	}
	return nil, fmt.Errorf("unknown request %s", one.Do)
}

func main() {
	answers := os.Stdout
	os.Stdout = os.Stderr
	rmq.EnableSsl = false
	rmq.ResetLogger()
	requests := bufio.NewScanner(os.Stdin)
	requests.Buffer(nil, 64<<20)
	for requests.Scan() {
		var one request
		answer := map[string]any{}
		err := json.Unmarshal(requests.Bytes(), &one)
		if err == nil {
			answer["answer"], err = serve(one)
		}
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		line, _ := json.Marshal(answer)
		answers.Write(append(line, '\n'))
	}
}
