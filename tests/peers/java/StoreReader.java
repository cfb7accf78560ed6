import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.utils.NetworkUtil;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Tells what Apache's own client reads from a cluster, in one JVM for any number of questions.
 *
 * <p>Argument: the name server's address. A question is a line of standard input, a JSON array of a verb and its
 * arguments; its answer is a line of standard output, an object with either "answer" or "error".
 */
public final class StoreReader {
    private static final String GROUP = "TOOLS_CONSUMER";
    private static final int BATCH = 32;
    private static final long FOREVER = Long.MAX_VALUE;

    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(GROUP);
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(10_000);

    private StoreReader(String nameServer) throws MQClientException {
        consumer.setNamesrvAddr(nameServer);
        consumer.start();
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName("StoreReader");
        admin.start();
    }

    public static void main(String[] arguments) throws Exception {
        // Answers have the standard output to themselves: whatever a library prints goes to the other stream.
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        StoreReader reader = new StoreReader(arguments[0]);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            Map<String, Object> reply = new LinkedHashMap<>();
            try {
                reply.put("answer", reader.answer(JSON.parseArray(line)));
            } catch (Exception error) {
                error.printStackTrace();
                reply.put("error", error.toString());
            }
            answers.println(JSON.toJSONString(reply));
        }
        System.exit(0);
    }

    private Object answer(JSONArray question) throws Exception {
        String verb = question.getString(0);
        String topic = question.getString(1);
        switch (verb) {
            case "queues":
                return queues(topic);
            case "messages":
                return messages(topic);
            case "view":
                return view(topic, question.getString(2), question.getString(3));
            case "query":
                return query(topic, question.getString(2), question.getString(3), question.getIntValue(4));
            case "search":
                return consumer.searchOffset(queue(topic, question.getIntValue(2)), question.getLongValue(3));
            default:
                throw new IllegalArgumentException("unknown verb " + verb);
        }
    }

    private List<Object> queues(String topic) throws Exception {
        List<Object> ranges = new ArrayList<>();
        for (MessageQueue queue : allQueues(topic)) {
            Map<String, Object> range = new LinkedHashMap<>();
            range.put("queueId", queue.getQueueId());
            range.put("minOffset", consumer.minOffset(queue));
            range.put("maxOffset", consumer.maxOffset(queue));
            ranges.add(range);
        }
        return ranges;
    }

    private List<Object> messages(String topic) throws Exception {
        List<Object> described = new ArrayList<>();
        for (MessageQueue queue : allQueues(topic)) {
            long end = consumer.maxOffset(queue);
            long offset = consumer.minOffset(queue);
            while (offset < end) {
                PullResult pulled = consumer.pull(queue, "*", offset, BATCH);
                if (pulled.getNextBeginOffset() <= offset) {
                    throw new IllegalStateException(queue + " does not go on after offset " + offset + ": " + pulled);
                }
                offset = pulled.getNextBeginOffset();
                if (pulled.getMsgFoundList() != null) {
                    for (MessageExt message : pulled.getMsgFoundList()) {
                        described.add(describe(message));
                    }
                }
            }
        }
        return described;
    }

    /** An id names the broker that stored the message; the store may have moved since, so its offset is asked for here. */
    private Object view(String topic, String id, String brokerAddress) throws Exception {
        InetSocketAddress here = (InetSocketAddress) NetworkUtil.string2SocketAddress(brokerAddress);
        long offset = MessageDecoder.decodeMessageId(id).getOffset();
        return describe(admin.viewMessage(topic, MessageDecoder.createMessageId(here, offset)));
    }

    private List<Object> query(String topic, String kind, String key, int limit) throws Exception {
        List<Object> described = new ArrayList<>();
        try {
            QueryResult found;
            if (kind.equals(MessageConst.INDEX_UNIQUE_TYPE)) {
                found = admin.queryMessageByUniqKey(null, topic, key, limit, 0, FOREVER);
            } else {
                found = admin.queryMessage(null, topic, key, limit, 0, FOREVER, kind, null);
            }
            for (MessageExt message : found.getMessageList()) {
                described.add(describe(message));
            }
        } catch (MQClientException error) {
            if (error.getResponseCode() != ResponseCode.NO_MESSAGE) {
                throw error;
            }
        }
        return described;
    }

    private List<MessageQueue> allQueues(String topic) throws Exception {
        List<MessageQueue> queues = new ArrayList<>();
        for (QueueData data : admin.examineTopicRouteInfo(topic).getQueueDatas()) {
            int count = Math.max(data.getReadQueueNums(), data.getWriteQueueNums());
            for (int id = 0; id < count; id++) {
                queues.add(new MessageQueue(topic, data.getBrokerName(), id));
            }
        }
        return queues;
    }

    private MessageQueue queue(String topic, int id) throws Exception {
        return new MessageQueue(topic, admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getBrokerName(), id);
    }

    private static Map<String, Object> describe(MessageExt message) throws Exception {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", message.getTopic());
        fields.put("queueId", message.getQueueId());
        fields.put("queueOffset", message.getQueueOffset());
        fields.put("physicalOffset", message.getCommitLogOffset());
        fields.put("storeSize", message.getStoreSize());
        fields.put("messageId", message.getMsgId());
        fields.put("offsetId", message instanceof MessageClientExt
            ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId());
        fields.put("flag", message.getFlag());
        fields.put("sysFlag", message.getSysFlag());
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("bornHost", NetworkUtil.socketAddress2String(message.getBornHost()));
        fields.put("storeTimestamp", message.getStoreTimestamp());
        fields.put("storeHost", NetworkUtil.socketAddress2String(message.getStoreHost()));
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        fields.put("bodyCrc", message.getBodyCRC());
        fields.put("bodySha256",
            HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(message.getBody())));
        // The client notes the ends of the queue in the properties of what it pulls; the record does not hold them.
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.remove(MessageConst.PROPERTY_MIN_OFFSET);
        properties.remove(MessageConst.PROPERTY_MAX_OFFSET);
        fields.put("properties", properties);
        return fields;
    }
}
