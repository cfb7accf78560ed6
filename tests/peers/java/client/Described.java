import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The client's values as what becomes JSON, and queues from JSON. */
final class Described {
    /** Of a longer body only the digest is told. */
    private static final int LONGEST_TEXT = 200;

    private Described() {
    }

    static Map<String, Object> message(MessageExt message) {
        Map<String, Object> row = new LinkedHashMap<>();
        byte[] body = message.getBody();
        row.put("topic", message.getTopic());
        row.put("queueId", message.getQueueId());
        row.put("queueOffset", message.getQueueOffset());
        row.put("physicalOffset", message.getCommitLogOffset());
        row.put("storeSize", message.getStoreSize());
        row.put("messageId", message.getMsgId());
        row.put("offsetId", message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : null);
        row.put("flag", message.getFlag());
        row.put("sysFlag", message.getSysFlag());
        row.put("storeTimestamp", message.getStoreTimestamp());
        row.put("storeHost", address((InetSocketAddress) message.getStoreHost()));
        row.put("reconsumeTimes", message.getReconsumeTimes());
        row.put("bodySize", body.length);
        row.put("bodySha256", sha256(body));
        row.put("text", body.length <= LONGEST_TEXT ? new String(body, StandardCharsets.UTF_8) : null);
        row.put("properties", new TreeMap<>(message.getProperties()));
        return row;
    }

    static List<Object> messages(Collection<MessageExt> messages) {
        List<Object> rows = new ArrayList<>();
        if (messages != null) {
            messages.forEach(message -> rows.add(message(message)));
        }
        return rows;
    }

    static Map<String, Object> sent(SendResult result) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("status", result.getSendStatus().name());
        row.put("messageId", result.getMsgId());
        row.put("offsetId", result.getOffsetMsgId());
        row.put("queue", queue(result.getMessageQueue()));
        row.put("queueOffset", result.getQueueOffset());
        row.put("regionId", result.getRegionId());
        row.put("traceOn", result.isTraceOn());
        return row;
    }

    static Map<String, Object> pulled(PullResult result) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("status", result.getPullStatus().name());
        row.put("next", result.getNextBeginOffset());
        row.put("min", result.getMinOffset());
        row.put("max", result.getMaxOffset());
        row.put("messages", messages(result.getMsgFoundList()));
        return row;
    }

    static Map<String, Object> queue(MessageQueue queue) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", queue.getTopic());
        row.put("broker", queue.getBrokerName());
        row.put("id", queue.getQueueId());
        return row;
    }

    static List<Object> queues(Collection<MessageQueue> queues) {
        List<Object> rows = new ArrayList<>();
        queues.stream().sorted().forEach(queue -> rows.add(queue(queue)));
        return rows;
    }

    static MessageQueue queue(JSONObject row) {
        return new MessageQueue(row.getString("topic"), row.getString("broker"), row.getIntValue("id"));
    }

    static Map<String, Object> error(Throwable error) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("type", error.getClass().getSimpleName());
        row.put("text", String.valueOf(error.getMessage()));
        row.put("code", -1);
        if (error instanceof MQBrokerException) {
            row.put("code", ((MQBrokerException) error).getResponseCode());
        } else if (error instanceof MQClientException) {
            row.put("code", ((MQClientException) error).getResponseCode());
        } else if (error instanceof RequestTimeoutException) {
            row.put("code", ((RequestTimeoutException) error).getResponseCode());
        }
        row.put("cause", error.getCause() == null ? null : error(error.getCause()));
        return row;
    }

    private static String address(InetSocketAddress host) {
        return host.getAddress().getHostAddress() + ":" + host.getPort();
    }

    private static String sha256(byte[] body) {
        try {
            StringBuilder digits = new StringBuilder();
            for (byte octet : MessageDigest.getInstance("SHA-256").digest(body)) {
                digits.append(String.format("%02x", octet));
            }
            return digits.toString();
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }
}
