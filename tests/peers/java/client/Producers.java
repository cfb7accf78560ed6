import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers, and every way they have of sending. */
final class Producers {
    private static final int TIMEOUT_MS = 15_000;

    private final Named<DefaultMQProducer> producers = new Named<>();

    void offer(Map<String, Verb> verbs) {
        verbs.put("producer.start", this::start);
        verbs.put("producer.stop", this::stop);
        verbs.put("producer.send", this::send);
        verbs.put("producer.batch", this::batch);
        verbs.put("producer.createTopic", this::createTopic);
        verbs.put("producer.queues", this::queues);
    }

    DefaultMQProducer named(JSONObject request) {
        return producers.get(request.getString("name"));
    }

    private Object start(JSONObject request) throws Exception {
        String group = request.getString("group");
        boolean trace = request.getBooleanValue("trace");
        String traceTopic = request.getString("traceTopic");
        DefaultMQProducer producer = Settings.made(request, () -> new DefaultMQProducer(group, trace, traceTopic));
        Integer timeout = request.getInteger("timeoutMs");
        producer.setSendMsgTimeout(timeout == null ? TIMEOUT_MS : timeout);
        Integer largest = request.getInteger("maxMessageSize");
        if (largest != null) {
            producer.setMaxMessageSize(largest);
        }
        producer.start();
        producers.put(request.getString("name"), producer);
        return null;
    }

    private Object stop(JSONObject request) {
        producers.remove(request.getString("name")).shutdown();
        return null;
    }

    private Object send(JSONObject request) throws Exception {
        DefaultMQProducer producer = named(request);
        Message message = message(request.getJSONObject("message"));
        String shard = request.getString("shard");
        MessageQueue queue = request.get("queue") == null ? null : Described.queue(request.getJSONObject("queue"));
        SelectMessageQueueByHash byHash = new SelectMessageQueueByHash();
        switch (request.getString("how")) {
            case "sync":
                if (shard != null) {
                    return Described.sent(producer.send(message, byHash, shard));
                }
                return Described.sent(queue == null ? producer.send(message) : producer.send(message, queue));
            case "async":
                Answer answer = new Answer();
                if (shard != null) {
                    producer.send(message, byHash, shard, answer);
                } else if (queue != null) {
                    producer.send(message, queue, answer);
                } else {
                    producer.send(message, answer);
                }
                return Described.sent(answer.get());
            case "oneway":
                if (shard != null) {
                    producer.sendOneway(message, byHash, shard);
                } else if (queue != null) {
                    producer.sendOneway(message, queue);
                } else {
                    producer.sendOneway(message);
                }
                return null;
            default:
                throw new IllegalArgumentException("cannot send " + request.getString("how"));
        }
    }

    private Object batch(JSONObject request) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (Object row : request.getJSONArray("messages")) {
            messages.add(message((JSONObject) row));
        }
        return Described.sent(named(request).send(messages));
    }

    /** By way of the implementation, because the public method's parameters differ between the versions. */
    private Object createTopic(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        named(request).getDefaultMQProducerImpl().createTopic("TBW102", topic, request.getIntValue("queues"));
        return null;
    }

    private Object queues(JSONObject request) throws Exception {
        return Described.queues(named(request).fetchPublishMessageQueues(request.getString("topic")));
    }

    static Message message(JSONObject row) {
        Message message = new Message(row.getString("topic"), Base64.getDecoder().decode(row.getString("body")));
        if (row.getString("tags") != null) {
            message.setTags(row.getString("tags"));
        }
        if (row.getString("keys") != null) {
            message.setKeys(row.getString("keys"));
        }
        if (row.getInteger("delayLevel") != null) {
            message.setDelayTimeLevel(row.getIntValue("delayLevel"));
        }
        message.setFlag(row.getIntValue("flag"));
        JSONObject properties = row.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((name, value) -> message.putUserProperty(name, (String) value));
        }
        return message;
    }

    /** What became of an asynchronous send. */
    private static final class Answer implements SendCallback {
        private final CompletableFuture<SendResult> outcome = new CompletableFuture<>();

        @Override
        public void onSuccess(SendResult result) {
            outcome.complete(result);
        }

        @Override
        public void onException(Throwable error) {
            outcome.completeExceptionally(error);
        }

        SendResult get() throws Exception {
            try {
                return outcome.get(2 * TIMEOUT_MS, TimeUnit.MILLISECONDS);
            } catch (ExecutionException failed) {
                if (failed.getCause() instanceof Exception) {
                    throw (Exception) failed.getCause();
                }
                throw failed;
            }
        }
    }
}
