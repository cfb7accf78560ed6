// Load for a server of RocketMQ's gRPC protocol: sends, or receives and acknowledges, over a number of
// connections with a number of calls in progress on each. Prints one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var (
	endpoint = flag.String("endpoint", "127.0.0.1:8081", "server")
	mode     = flag.String("mode", "send", "send or receive")
	topic    = flag.String("topic", "bench", "topic")
	group    = flag.String("group", "bench", "consumer group")
	channels = flag.Int("channels", 8, "connections, each of a client of its own")
	inFlight = flag.Int("in-flight", 32, "calls in progress of each connection")
	size     = flag.Int("size", 128, "bytes of a body")
	seconds  = flag.Float64("seconds", 5, "time to measure")
	limit    = flag.Int64("messages", 1<<62, "stop after this many messages")
)

var (
	sequence atomic.Int64
	done     atomic.Int64
	failed   atomic.Int64
	problem  atomic.Value
)

func main() {
	flag.Parse()
	deadline := time.Now().Add(time.Duration(*seconds * float64(time.Second)))
	var workers sync.WaitGroup
	latencies := make([][]time.Duration, *channels**inFlight)
	began := time.Now()
	for channel := 0; channel < *channels; channel++ {
		connection, err := grpc.NewClient(*endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			panic(err)
		}
		client := pb.NewMessagingServiceClient(connection)
		id := fmt.Sprintf("bench@%d@%d", os.Getpid(), channel)
		if *mode == "receive" {
			settle(client, id)
		}
		for worker := 0; worker < *inFlight; worker++ {
			workers.Add(1)
			go func(number int) {
				defer workers.Done()
				for time.Now().Before(deadline) && done.Load() < *limit {
					if *mode == "send" {
						start := time.Now()
						send(client, id)
						latencies[number] = append(latencies[number], time.Since(start))
					} else if receive(client, id) == 0 {
						return
					}
				}
			}(channel**inFlight + worker)
		}
	}
	workers.Wait()
	report(time.Since(began).Seconds(), latencies)
}

// The metadata of the Java client.
func call(id string, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	return metadata.AppendToOutgoingContext(ctx,
		"x-mq-client-id", id, "x-mq-language", "JAVA", "x-mq-client-version", "5.2.0", "x-mq-protocol", "v2",
		"x-mq-namespace", "", "x-mq-request-id", fmt.Sprintf("6f9619ff-8b86-d011-b42d-%012d", sequence.Add(1)),
		"x-mq-date-time", time.Now().Format("20060102T150405Z")), cancel
}

func resource(name string) *pb.Resource { return &pb.Resource{Name: name} }

func send(client pb.MessagingServiceClient, id string) {
	ctx, cancel := call(id, 10*time.Second)
	defer cancel()
	number := sequence.Add(1)
	answer, err := client.SendMessage(ctx, &pb.SendMessageRequest{Messages: []*pb.Message{{
		Topic: resource(*topic),
		Body:  make([]byte, *size),
		SystemProperties: &pb.SystemProperties{
			MessageId:     fmt.Sprintf("01A1B2C3D4E5F6%020X", number),
			MessageType:   pb.MessageType_NORMAL,
			BodyEncoding:  pb.Encoding_IDENTITY,
			BornHost:      "bench",
			BornTimestamp: timestamppb.Now(),
			QueueId:       int32(number & 7),
		},
	}}})
	if err == nil && answer.Status.Code == pb.Code_OK {
		done.Add(1)
	} else {
		note(err, answer.GetStatus())
	}
}

func settle(client pb.MessagingServiceClient, id string) {
	ctx, _ := call(id, time.Hour)
	stream, err := client.Telemetry(ctx)
	if err != nil {
		panic(err)
	}
	kind := pb.ClientType_SIMPLE_CONSUMER
	settings := &pb.Settings{ClientType: &kind, RequestTimeout: durationpb.New(3 * time.Second)}
	settings.PubSub = &pb.Settings_Subscription{Subscription: &pb.Subscription{
		Group: resource(*group),
		Subscriptions: []*pb.SubscriptionEntry{{
			Topic:      resource(*topic),
			Expression: &pb.FilterExpression{Type: pb.FilterType_TAG, Expression: "*"},
		}},
	}}
	if err = stream.Send(&pb.TelemetryCommand{Command: &pb.TelemetryCommand_Settings{Settings: settings}}); err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		panic(err)
	}
}

// One ReceiveMessage, and an AckMessage for each message, as the official clients do.
func receive(client pb.MessagingServiceClient, id string) int {
	ctx, cancel := call(id, 15*time.Second)
	defer cancel()
	stream, err := client.ReceiveMessage(ctx, &pb.ReceiveMessageRequest{
		Group:              resource(*group),
		MessageQueue:       &pb.MessageQueue{Topic: resource(*topic), Id: -1, Broker: &pb.Broker{}},
		FilterExpression:   &pb.FilterExpression{Type: pb.FilterType_TAG, Expression: "*"},
		BatchSize:          32,
		InvisibleDuration:  durationpb.New(60 * time.Second),
		LongPollingTimeout: durationpb.New(5 * time.Second),
	})
	count := 0
	for err == nil {
		var part *pb.ReceiveMessageResponse
		if part, err = stream.Recv(); err != nil {
			break
		}
		if message := part.GetMessage(); message != nil {
			count++
			acknowledge(client, id, message)
		}
	}
	if err != io.EOF {
		note(err, nil)
	}
	return count
}

func acknowledge(client pb.MessagingServiceClient, id string, message *pb.Message) {
	ctx, cancel := call(id, 10*time.Second)
	defer cancel()
	answer, err := client.AckMessage(ctx, &pb.AckMessageRequest{
		Group: resource(*group), Topic: resource(*topic),
		Entries: []*pb.AckMessageEntry{{
			MessageId:     message.SystemProperties.MessageId,
			ReceiptHandle: message.SystemProperties.GetReceiptHandle(),
		}},
	})
	if err == nil && answer.Status.Code == pb.Code_OK {
		done.Add(1)
	} else {
		note(err, answer.GetStatus())
	}
}

func note(err error, status *pb.Status) {
	if failed.Add(1) == 1 {
		problem.Store(fmt.Sprintf("%v %v", err, status))
	}
}

func report(took float64, latencies [][]time.Duration) {
	var all []time.Duration
	for _, one := range latencies {
		all = append(all, one...)
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	at := func(share float64) float64 {
		if len(all) == 0 {
			return 0
		}
		return float64(all[int(share*float64(len(all)-1))].Microseconds()) / 1000
	}
	first, _ := problem.Load().(string)
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"seconds": took, "messages": done.Load(), "failed": failed.Load(), "problem": first,
		"p50": at(0.5), "p99": at(0.99),
	})
}
