import com.alibaba.fastjson.JSONObject;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/** Notes what is delivered, and fails as often as it was told to for each message. */
final class RecordingListener {
    private static final int SUSPEND_MS = 50;

    private final List<Object> deliveries = new ArrayList<>();
    private final Map<String, Integer> failed = new HashMap<>();
    private final int failures;
    private final String failing;
    private final String failWith;
    private final int delayLevel;
    private final FileOutputStream journal;

    RecordingListener(JSONObject request) throws IOException {
        failures = request.getIntValue("failures");
        failing = request.getString("failing");
        failWith = request.getString("failWith");
        delayLevel = request.getIntValue("delayLevel");
        String path = request.getString("journal");
        journal = path == null ? null : new FileOutputStream(path, true);
    }

    synchronized List<Object> since(int first) {
        return new ArrayList<>(deliveries.subList(Math.min(first, deliveries.size()), deliveries.size()));
    }

    MessageListenerConcurrently concurrently() {
        return this::consumeConcurrently;
    }

    MessageListenerOrderly orderly() {
        return this::consumeOrderly;
    }

    private ConsumeConcurrentlyStatus consumeConcurrently(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
        if (note(messages)) {
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
        context.setDelayLevelWhenNextConsume(delayLevel);
        switch (failWith) {
            case "exception":
                throw new IllegalStateException("a listener that fails");
            case "null":
                return null;
            default:
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
    }

    private ConsumeOrderlyStatus consumeOrderly(List<MessageExt> messages, ConsumeOrderlyContext context) {
        if (note(messages)) {
            return ConsumeOrderlyStatus.SUCCESS;
        }
        context.setSuspendCurrentQueueTimeMillis(SUSPEND_MS);
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
    }

    /** Whether none of the messages is to fail this time. */
    private synchronized boolean note(List<MessageExt> messages) {
        boolean good = true;
        for (MessageExt message : messages) {
            deliveries.add(Described.message(message));
            write(message.getBody());
            // A message keeps its unique id over retries, though it is stored anew each time.
            if (failing == null || failing.equals(new String(message.getBody()))) {
                good &= failed.merge(message.getMsgId(), 1, Integer::sum) > failures;
            }
        }
        return good;
    }

    /** What is in the journal stays there when this process is killed. */
    private void write(byte[] body) {
        if (journal == null) {
            return;
        }
        byte[] line = new byte[body.length + 1];
        System.arraycopy(body, 0, line, 0, body.length);
        line[body.length] = '\n';
        try {
            journal.write(line);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
