import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.Closeable;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Apache's Java client for gRPC as a peer: producers and consumers that do what a line of JSON says. */
public class GrpcAgent {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private final ClientConfiguration configuration;
    private final Map<String, Closeable> clients = new HashMap<>();
    private final Map<String, Map<String, MessageView>> messages = new HashMap<>();
    private final Map<String, List<JsonObject>> received = new HashMap<>();

    private GrpcAgent(String endpoints) {
        configuration = ClientConfiguration.newBuilder().setEndpoints(endpoints).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10)).build();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        GrpcAgent agent = new GrpcAgent(arguments[0]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        Gson gson = new Gson();
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonObject answer = new JsonObject();
            try {
                answer.add("answer", agent.serve(gson.fromJson(line, JsonObject.class)));
            } catch (Throwable error) {
                answer.addProperty("error", error.getClass().getSimpleName() + ": " + error.getMessage());
            }
            answers.println(answer);
            answers.flush();
        }
        System.exit(0);
    }

    private JsonElement serve(JsonObject request) throws Exception {
        String name = request.get("name").getAsString();
        switch (request.get("do").getAsString()) {
            case "producer":
                return producer(name, request);
            case "send":
                return send((Producer) clients.get(name), request.getAsJsonArray("messages"));
            case "recall":
                return new Gson().toJsonTree(((Producer) clients.get(name)).recallMessage(
                    request.get("topic").getAsString(), request.get("handle").getAsString()).getMessageId().toString());
            case "transaction":
                return transaction((Producer) clients.get(name), request);
            case "simple":
                return simple(name, request);
            case "receive":
                return receive(name, request);
            case "ack":
                for (JsonElement id : request.getAsJsonArray("ids")) {
                    ((SimpleConsumer) clients.get(name)).ack(messages.get(name).get(id.getAsString()));
                }
                return null;
            case "hide":
                ((SimpleConsumer) clients.get(name)).changeInvisibleDuration(
                    messages.get(name).get(request.get("message").getAsString()),
                    Duration.ofSeconds(request.get("seconds").getAsLong()));
                return null;
            case "push":
                return push(name, request);
            case "lite":
                return lite(name, request);
            case "choose":
                ((LitePushConsumer) clients.get(name)).subscribeLite(request.get("lite").getAsString());
                return null;
            case "leave":
                ((LitePushConsumer) clients.get(name)).unsubscribeLite(request.get("lite").getAsString());
                return null;
            case "chosen":
                return new Gson().toJsonTree(((LitePushConsumer) clients.get(name)).getLiteTopicSet());
            case "take":
                return take(name, request);
            case "close":
                clients.remove(name).close();
                return null;
            default:
                throw new IllegalArgumentException("unknown request");
        }
    }

    private JsonElement producer(String name, JsonObject request) throws Exception {
        List<String> topics = new ArrayList<>();
        request.getAsJsonArray("topics").forEach(topic -> topics.add(topic.getAsString()));
        TransactionResolution resolution = "rollback".equals(request.get("check").getAsString())
            ? TransactionResolution.ROLLBACK : TransactionResolution.COMMIT;
        clients.put(name, PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(topics.toArray(new String[0])).setTransactionChecker(message -> resolution).build());
        return null;
    }

    private JsonElement send(Producer producer, JsonArray wanted) throws Exception {
        JsonArray found = new JsonArray();
        for (JsonElement one : wanted) {
            SendReceipt receipt = producer.send(made(one.getAsJsonObject()));
            JsonObject sent = new JsonObject();
            sent.addProperty("messageId", receipt.getMessageId().toString());
            sent.addProperty("recallHandle", receipt.getRecallHandle() == null ? "" : receipt.getRecallHandle());
            sent.addProperty("offset", 0);
            found.add(sent);
        }
        return found;
    }

    private JsonElement transaction(Producer producer, JsonObject request) throws Exception {
        Transaction transaction = producer.beginTransaction();
        SendReceipt receipt = producer.send(made(request.getAsJsonObject("message")), transaction);
        String action = request.get("action").getAsString();
        if ("commit".equals(action)) {
            transaction.commit();
        } else if ("rollback".equals(action)) {
            transaction.rollback();
        }
        return new Gson().toJsonTree(receipt.getMessageId().toString());
    }

    private static Message made(JsonObject wanted) {
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(wanted.get("topic").getAsString())
            .setBody(Base64.getDecoder().decode(wanted.get("body").getAsString()));
        if (!wanted.get("tag").getAsString().isEmpty()) {
            builder.setTag(wanted.get("tag").getAsString());
        }
        if (wanted.getAsJsonArray("keys").size() > 0) {
            List<String> keys = new ArrayList<>();
            wanted.getAsJsonArray("keys").forEach(key -> keys.add(key.getAsString()));
            builder.setKeys(keys.toArray(new String[0]));
        }
        if (!wanted.get("group").getAsString().isEmpty()) {
            builder.setMessageGroup(wanted.get("group").getAsString());
        }
        if (!wanted.get("lite").getAsString().isEmpty()) {
            builder.setLiteTopic(wanted.get("lite").getAsString());
        }
        if (wanted.get("delayMs").getAsLong() > 0) {
            builder.setDeliveryTimestamp(System.currentTimeMillis() + wanted.get("delayMs").getAsLong());
        }
        wanted.getAsJsonObject("properties").entrySet()
            .forEach(entry -> builder.addProperty(entry.getKey(), entry.getValue().getAsString()));
        return builder.build();
    }

    private JsonElement simple(String name, JsonObject request) throws Exception {
        clients.put(name, PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(request.get("group").getAsString())
            .setAwaitDuration(Duration.ofSeconds(request.get("seconds").getAsLong()))
            .setSubscriptionExpressions(filters(request)).build());
        messages.put(name, new HashMap<>());
        return null;
    }

    private JsonElement receive(String name, JsonObject request) throws Exception {
        JsonArray found = new JsonArray();
        for (MessageView view : ((SimpleConsumer) clients.get(name)).receive(
                request.get("count").getAsInt(), Duration.ofSeconds(request.get("invisible").getAsLong()))) {
            messages.get(name).put(view.getMessageId().toString(), view);
            found.add(described(view));
        }
        return found;
    }

    private JsonElement push(String name, JsonObject request) throws Exception {
        clients.put(name, PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(request.get("group").getAsString()).setSubscriptionExpressions(filters(request))
            .setMessageListener(listener(name, request)).build());
        return null;
    }

    private JsonElement lite(String name, JsonObject request) throws Exception {
        LitePushConsumer consumer = PROVIDER.newLitePushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(request.get("group").getAsString()).bindTopic(request.get("topic").getAsString())
            .setMessageListener(listener(name, request)).build();
        clients.put(name, consumer);
        for (JsonElement lite : request.getAsJsonArray("lites")) {
            consumer.subscribeLite(lite.getAsString());
        }
        return null;
    }

    private MessageListener listener(String name, JsonObject request) {
        Map<String, Integer> failures = new HashMap<>();
        request.getAsJsonObject("failures").entrySet()
            .forEach(entry -> failures.put(entry.getKey(), entry.getValue().getAsInt()));
        List<JsonObject> list = new ArrayList<>();
        received.put(name, list);
        return view -> {
            synchronized (list) {
                JsonObject one = described(view);
                list.add(one);
                list.notifyAll();
                String body = new String(Base64.getDecoder().decode(one.get("body").getAsString()));
                int left = failures.getOrDefault(body, 0);
                failures.put(body, left - 1);
                return left > 0 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }
        };
    }

    private JsonElement take(String name, JsonObject request) throws Exception {
        List<JsonObject> list = received.get(name);
        long deadline = System.currentTimeMillis() + (long) (request.get("seconds").getAsDouble() * 1000);
        synchronized (list) {
            while (list.size() < request.get("count").getAsInt() && System.currentTimeMillis() < deadline) {
                list.wait(Math.max(deadline - System.currentTimeMillis(), 1));
            }
            JsonArray found = new JsonArray();
            list.forEach(found::add);
            list.clear();
            return found;
        }
    }

    private static Map<String, FilterExpression> filters(JsonObject request) {
        Map<String, FilterExpression> found = new HashMap<>();
        request.getAsJsonObject("topics").entrySet().forEach(entry -> {
            JsonObject one = entry.getValue().getAsJsonObject();
            found.put(entry.getKey(), new FilterExpression(one.get("expression").getAsString(),
                one.get("sql").getAsBoolean() ? FilterExpressionType.SQL92 : FilterExpressionType.TAG));
        });
        return found;
    }

    private static JsonObject described(MessageView view) {
        ByteBuffer buffer = view.getBody();
        byte[] body = new byte[buffer.remaining()];
        buffer.get(body);
        JsonObject found = new JsonObject();
        found.addProperty("topic", view.getTopic());
        found.addProperty("body", Base64.getEncoder().encodeToString(body));
        found.addProperty("tag", view.getTag().orElse(null));
        found.add("keys", new Gson().toJsonTree(view.getKeys()));
        found.add("properties", new Gson().toJsonTree(view.getProperties()));
        found.addProperty("messageId", view.getMessageId().toString());
        found.addProperty("attempt", view.getDeliveryAttempt());
        found.addProperty("group", view.getMessageGroup().orElse(null));
        found.addProperty("lite", view.getLiteTopic().orElse(null));
        return found;
    }
}
