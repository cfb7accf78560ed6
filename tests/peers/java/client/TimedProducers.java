import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.InvocationTargetException;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Producers of messages for a time, which they can take back; only newer versions of the client have either. */
final class TimedProducers {
    private static final int TIMEOUT_MS = 15_000;

    private final Named<DefaultMQProducer> producers = new Named<>();

    void offer(Map<String, Verb> verbs) {
        verbs.put("timed.start", this::start);
        verbs.put("timed.stop", this::stop);
        verbs.put("timed.send", this::send);
        verbs.put("timed.recall", this::recall);
    }

    private Object start(JSONObject request) throws Exception {
        String group = request.getString("group");
        DefaultMQProducer producer = Settings.made(request, () -> new DefaultMQProducer(group));
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.start();
        producers.put(request.getString("name"), producer);
        return null;
    }

    private Object stop(JSONObject request) {
        producers.remove(request.getString("name")).shutdown();
        return null;
    }

    /** "times" has one of delayTimeSec, delayTimeMs and deliverTimeMs. */
    private Object send(JSONObject request) throws Exception {
        Message message = Producers.message(request.getJSONObject("message"));
        Setters.apply(message, request.getJSONObject("times"));
        SendResult result = producers.get(request.getString("name")).send(message);
        Map<String, Object> row = Described.sent(result);
        row.put("recallHandle", SendResult.class.getMethod("getRecallHandle").invoke(result));
        return row;
    }

    private Object recall(JSONObject request) throws Exception {
        DefaultMQProducer producer = producers.get(request.getString("name"));
        try {
            return DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer, request.getString("topic"), request.getString("handle"));
        } catch (InvocationTargetException error) {
            throw (Exception) error.getCause();
        }
    }
}
