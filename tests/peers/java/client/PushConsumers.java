import com.alibaba.fastjson.JSONObject;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers: what was delivered to them, and which queues they were given. */
final class PushConsumers {
    private final Named<DefaultMQPushConsumer> consumers = new Named<>();
    private final Named<RecordingListener> listeners = new Named<>();

    void offer(Map<String, Verb> verbs) {
        verbs.put("push.start", this::start);
        verbs.put("push.stop", this::stop);
        verbs.put("push.consumed", this::consumed);
        verbs.put("push.queues", this::queues);
    }

    private Object start(JSONObject request) throws Exception {
        String name = request.getString("name");
        String group = request.getString("group");
        boolean trace = request.getBooleanValue("trace");
        String traceTopic = request.getString("traceTopic");
        DefaultMQPushConsumer consumer =
            Settings.made(request, () -> new DefaultMQPushConsumer(group, trace, traceTopic));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(request.getString("from")));
        // The versions have this type in different packages, so it is not named here.
        var clustering = consumer.getMessageModel();
        consumer.setMessageModel(Enum.valueOf(clustering.getDeclaringClass(), request.getString("model")));
        consumer.setMaxReconsumeTimes(request.getIntValue("maxReconsumeTimes"));
        consumer.setConsumeMessageBatchMaxSize(request.getIntValue("batchSize"));
        Setters.apply(consumer, request.getJSONObject("setters"));
        if (request.getString("sql") != null) {
            consumer.subscribe(request.getString("topic"), MessageSelector.bySql(request.getString("sql")));
        } else {
            consumer.subscribe(request.getString("topic"), request.getString("tags"));
        }
        RecordingListener listener = new RecordingListener(request);
        if (request.getBooleanValue("orderly")) {
            consumer.registerMessageListener(listener.orderly());
        } else {
            consumer.registerMessageListener(listener.concurrently());
        }
        consumer.start();
        consumers.put(name, consumer);
        listeners.put(name, listener);
        return null;
    }

    /** What it was given is still told. */
    private Object stop(JSONObject request) {
        consumers.remove(request.getString("name")).shutdown();
        return null;
    }

    private Object consumed(JSONObject request) {
        return listeners.get(request.getString("name")).since(request.getIntValue("since"));
    }

    private Object queues(JSONObject request) {
        String topic = request.getString("topic");
        List<MessageQueue> queues = consumers.get(request.getString("name")).getDefaultMQPushConsumerImpl()
            .getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(topic)).collect(Collectors.toList());
        return Described.queues(queues);
    }
}
