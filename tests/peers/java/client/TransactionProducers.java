import com.alibaba.fastjson.JSONObject;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Producers of transactions, which say of each what the test wants them to say. */
final class TransactionProducers {
    private static final int TIMEOUT_MS = 15_000;

    private final Named<Started> producers = new Named<>();

    void offer(Map<String, Verb> verbs) {
        verbs.put("transaction.start", this::start);
        verbs.put("transaction.stop", this::stop);
        verbs.put("transaction.send", this::send);
        verbs.put("transaction.answer", this::answer);
        verbs.put("transaction.checked", this::checked);
        verbs.put("transaction.queues", this::queues);
    }

    private Started named(JSONObject request) {
        return producers.get(request.getString("name"));
    }

    private Object start(JSONObject request) throws Exception {
        String group = request.getString("group");
        boolean trace = request.getBooleanValue("trace");
        String traceTopic = request.getString("traceTopic");
        Started started = new Started(
            Settings.made(request, () -> new TransactionMQProducer(null, group, null, trace, traceTopic)));
        started.producer.setSendMsgTimeout(TIMEOUT_MS);
        started.producer.setTransactionListener(started);
        started.producer.start();
        producers.put(request.getString("name"), started);
        return null;
    }

    private Object stop(JSONObject request) {
        producers.remove(request.getString("name")).producer.shutdown();
        return null;
    }

    /** Sends a message, whose local transaction comes to "state". */
    private Object send(JSONObject request) throws Exception {
        Message message = Producers.message(request.getJSONObject("message"));
        LocalTransactionState state = LocalTransactionState.valueOf(request.getString("state"));
        TransactionSendResult result = named(request).producer.sendMessageInTransaction(message, state);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("status", result.getSendStatus().name());
        row.put("messageId", result.getMsgId());
        row.put("transactionId", result.getTransactionId());
        row.put("queue", Described.queue(result.getMessageQueue()));
        row.put("queueOffset", result.getQueueOffset());
        row.put("state", result.getLocalTransactionState().name());
        return row;
    }

    /** From now on says "state" when it is asked about a message with these "keys". */
    private Object answer(JSONObject request) {
        LocalTransactionState state = LocalTransactionState.valueOf(request.getString("state"));
        named(request).answers.put(request.getString("keys"), state);
        return null;
    }

    private Object checked(JSONObject request) {
        return Described.messages(named(request).checked);
    }

    private Object queues(JSONObject request) throws Exception {
        return Described.queues(named(request).producer.fetchPublishMessageQueues(request.getString("topic")));
    }

    private static final class Started implements TransactionListener {
        final TransactionMQProducer producer;
        final Map<String, LocalTransactionState> answers = new ConcurrentHashMap<>();
        final List<MessageExt> checked = new CopyOnWriteArrayList<>();

        Started(TransactionMQProducer producer) {
            this.producer = producer;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object state) {
            return (LocalTransactionState) state;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checked.add(message);
            return answers.getOrDefault(message.getKeys(), LocalTransactionState.UNKNOW);
        }
    }
}
