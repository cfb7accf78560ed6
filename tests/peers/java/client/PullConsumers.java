import com.alibaba.fastjson.JSONObject;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pull consumers: pulls from any offset, and everything that can be asked about a queue or a message. */
final class PullConsumers {
    private final Named<DefaultMQPullConsumer> consumers = new Named<>();
    private final Named<Held> held = new Named<>();

    void offer(Map<String, Verb> verbs) {
        verbs.put("pull.start", this::start);
        verbs.put("pull.stop", this::stop);
        verbs.put("pull.pull", this::pull);
        verbs.put("pull.hold", this::hold);
        verbs.put("pull.held", this::held);
        verbs.put("pull.queues", this::queues);
        verbs.put("pull.offsets", this::offsets);
        verbs.put("pull.search", this::search);
        verbs.put("pull.committed", this::committed);
        verbs.put("pull.commit", this::commit);
        verbs.put("pull.sendBack", this::sendBack);
        verbs.put("pull.view", this::view);
        verbs.put("pull.query", this::query);
    }

    private Object start(JSONObject request) throws Exception {
        String group = request.getString("group");
        DefaultMQPullConsumer consumer = Settings.made(request, () -> new DefaultMQPullConsumer(group));
        consumer.start();
        consumers.put(request.getString("name"), consumer);
        return null;
    }

    private Object stop(JSONObject request) {
        consumers.remove(request.getString("name")).shutdown();
        return null;
    }

    private DefaultMQPullConsumer named(JSONObject request) {
        return consumers.get(request.getString("name"));
    }

    private Object pull(JSONObject request) throws Exception {
        MessageQueue queue = Described.queue(request.getJSONObject("queue"));
        long offset = request.getLongValue("offset");
        int count = request.getIntValue("count");
        String sql = request.getString("sql");
        if (sql != null) {
            return Described.pulled(named(request).pull(queue, MessageSelector.bySql(sql), offset, count));
        }
        return Described.pulled(named(request).pull(queue, request.getString("tags"), offset, count));
    }

    /** A pull that the broker holds until there is something; "held" tells its outcome. */
    private Object hold(JSONObject request) throws Exception {
        Held outcome = new Held();
        MessageQueue queue = Described.queue(request.getJSONObject("queue"));
        held.put(request.getString("hold"), outcome);
        named(request).pullBlockIfNotFound(
            queue, request.getString("tags"), request.getLongValue("offset"), request.getIntValue("count"), outcome);
        return null;
    }

    private Object held(JSONObject request) throws Exception {
        Held outcome = held.get(request.getString("hold"));
        if (outcome.error != null) {
            throw new IllegalStateException(outcome.error);
        }
        return outcome.result == null ? null : Described.pulled(outcome.result);
    }

    private Object queues(JSONObject request) throws Exception {
        return Described.queues(named(request).fetchSubscribeMessageQueues(request.getString("topic")));
    }

    private Object offsets(JSONObject request) throws Exception {
        MessageQueue queue = Described.queue(request.getJSONObject("queue"));
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("min", named(request).minOffset(queue));
        row.put("max", named(request).maxOffset(queue));
        row.put("earliest", named(request).earliestMsgStoreTime(queue));
        return row;
    }

    private Object search(JSONObject request) throws Exception {
        MessageQueue queue = Described.queue(request.getJSONObject("queue"));
        return named(request).searchOffset(queue, request.getLongValue("timestamp"));
    }

    private Object committed(JSONObject request) throws Exception {
        return named(request).fetchConsumeOffset(Described.queue(request.getJSONObject("queue")), true);
    }

    /** To the broker at once: by itself the consumer tells only about queues that it was given by rebalancing. */
    private Object commit(JSONObject request) throws Exception {
        MessageQueue queue = Described.queue(request.getJSONObject("queue"));
        OffsetStore store = named(request).getDefaultMQPullConsumerImpl().getOffsetStore();
        store.updateConsumeOffsetToBroker(queue, request.getLongValue("offset"), false);
        return null;
    }

    private Object sendBack(JSONObject request) throws Exception {
        MessageQueue queue = Described.queue(request.getJSONObject("queue"));
        PullResult pulled = named(request).pull(queue, "*", request.getLongValue("offset"), 1);
        int delayLevel = request.getIntValue("delayLevel");
        named(request).sendMessageBack(pulled.getMsgFoundList().get(0), delayLevel, queue.getBrokerName());
        return null;
    }

    private Object view(JSONObject request) throws Exception {
        return Described.message(named(request).viewMessage(request.getString("topic"), request.getString("id")));
    }

    private Object query(JSONObject request) throws Exception {
        return Described.messages(named(request).queryMessage(
            request.getString("topic"), request.getString("key"), request.getIntValue("limit"),
            request.getLongValue("begin"), request.getLongValue("end")).getMessageList());
    }

    private static final class Held implements PullCallback {
        private volatile PullResult result;
        private volatile Throwable error;

        @Override
        public void onSuccess(PullResult pulled) {
            result = pulled;
        }

        @Override
        public void onException(Throwable failed) {
            error = failed;
        }
    }
}
