import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** Lite pull consumers, which either subscribe to a topic or are assigned queues. */
final class LitePullConsumers {
    private final Named<DefaultLitePullConsumer> consumers = new Named<>();

    void offer(Map<String, Verb> verbs) {
        verbs.put("lite.start", this::start);
        verbs.put("lite.stop", this::stop);
        verbs.put("lite.assign", this::assign);
        verbs.put("lite.assignment", this::assignment);
        verbs.put("lite.seek", this::seek);
        verbs.put("lite.poll", this::poll);
        verbs.put("lite.commit", this::commit);
        verbs.put("lite.committed", this::committed);
        verbs.put("lite.queues", this::queues);
        verbs.put("lite.search", this::search);
    }

    private Object start(JSONObject request) throws Exception {
        String group = request.getString("group");
        String topic = request.getString("topic");
        DefaultLitePullConsumer consumer = Settings.made(request, () -> new DefaultLitePullConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        if (topic != null && request.getString("sql") != null) {
            consumer.subscribe(topic, MessageSelector.bySql(request.getString("sql")));
        } else if (topic != null) {
            consumer.subscribe(topic, request.getString("tags"));
        }
        consumer.start();
        consumers.put(request.getString("name"), consumer);
        return null;
    }

    private Object stop(JSONObject request) {
        consumers.remove(request.getString("name")).shutdown();
        return null;
    }

    private DefaultLitePullConsumer named(JSONObject request) {
        return consumers.get(request.getString("name"));
    }

    private Object assign(JSONObject request) {
        List<MessageQueue> queues = new ArrayList<>();
        request.getJSONArray("queues").forEach(row -> queues.add(Described.queue((JSONObject) row)));
        named(request).assign(queues);
        return null;
    }

    private Object assignment(JSONObject request) throws Exception {
        return Described.queues(named(request).assignment());
    }

    private Object seek(JSONObject request) throws Exception {
        MessageQueue queue = Described.queue(request.getJSONObject("queue"));
        switch (request.getString("to")) {
            case "begin":
                named(request).seekToBegin(queue);
                return null;
            case "end":
                named(request).seekToEnd(queue);
                return null;
            default:
                named(request).seek(queue, Long.parseLong(request.getString("to")));
                return null;
        }
    }

    private Object poll(JSONObject request) {
        return Described.messages(named(request).poll(request.getLongValue("timeout")));
    }

    /** To the broker at once. */
    private Object commit(JSONObject request) {
        MessageQueue queue = Described.queue(request.getJSONObject("queue"));
        named(request).commitSync(Collections.singletonMap(queue, request.getLongValue("offset")), true);
        return null;
    }

    private Object committed(JSONObject request) throws Exception {
        return named(request).committed(Described.queue(request.getJSONObject("queue")));
    }

    private Object queues(JSONObject request) throws Exception {
        return Described.queues(named(request).fetchMessageQueues(request.getString("topic")));
    }

    private Object search(JSONObject request) throws Exception {
        MessageQueue queue = Described.queue(request.getJSONObject("queue"));
        return named(request).offsetForTimestamp(queue, request.getLongValue("timestamp"));
    }
}
