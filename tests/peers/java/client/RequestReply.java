import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Those who ask and wait for a reply, and those who reply. */
final class RequestReply {
    private static final int TIMEOUT_MS = 15_000;

    private final Named<DefaultMQProducer> requesters = new Named<>();
    private final Named<Replier> repliers = new Named<>();

    void offer(Map<String, Verb> verbs) {
        verbs.put("requester.start", this::startRequester);
        verbs.put("requester.stop", this::stopRequester);
        verbs.put("requester.ask", this::ask);
        verbs.put("replier.start", this::startReplier);
        verbs.put("replier.stop", this::stopReplier);
        verbs.put("replier.asked", this::asked);
    }

    private Object startRequester(JSONObject request) throws Exception {
        String group = request.getString("group");
        DefaultMQProducer producer = Settings.made(request, () -> new DefaultMQProducer(group));
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.start();
        requesters.put(request.getString("name"), producer);
        return null;
    }

    private Object stopRequester(JSONObject request) {
        requesters.remove(request.getString("name")).shutdown();
        return null;
    }

    /** The reply, or the exception that says that there was none. */
    private Object ask(JSONObject request) throws Exception {
        Message message = Producers.message(request.getJSONObject("message"));
        DefaultMQProducer producer = requesters.get(request.getString("name"));
        return Described.message((MessageExt) producer.request(message, request.getLongValue("timeoutMs")));
    }

    private Object startReplier(JSONObject request) throws Exception {
        repliers.put(request.getString("name"), new Replier(request));
        return null;
    }

    private Object stopReplier(JSONObject request) {
        repliers.remove(request.getString("name")).stop();
        return null;
    }

    private Object asked(JSONObject request) {
        return Described.messages(repliers.get(request.getString("name")).asked);
    }

    /** Replies to every message of a topic with "prefix" and what was in it, "times" times over. */
    private static final class Replier {
        final List<MessageExt> asked = new CopyOnWriteArrayList<>();
        private final DefaultMQPushConsumer consumer;
        private final DefaultMQProducer producer;

        Replier(JSONObject request) throws Exception {
            String group = request.getString("group");
            String prefix = request.getString("prefix");
            int times = request.getIntValue("times");
            // Each has an instance of its own: the name alone would make them share one.
            JSONObject ofProducer = new JSONObject(request);
            ofProducer.put("name", request.getString("name") + "-replies");
            producer = Settings.made(ofProducer, () -> new DefaultMQProducer(group + "_replies"));
            producer.setSendMsgTimeout(TIMEOUT_MS);
            producer.start();
            consumer = Settings.made(request, () -> new DefaultMQPushConsumer(group));
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(request.getString("topic"), "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    asked.add(message);
                    String text = prefix + new String(message.getBody(), StandardCharsets.UTF_8);
                    try {
                        byte[] body = text.repeat(times).getBytes(StandardCharsets.UTF_8);
                        producer.send(MessageUtil.createReplyMessage(message, body));
                    } catch (Exception error) {
                        error.printStackTrace();
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
        }

        void stop() {
            consumer.shutdown();
            producer.shutdown();
        }
    }
}
