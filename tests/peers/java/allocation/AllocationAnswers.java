import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.parser.Feature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads questions about shares of queues, one JSON object in a line, and prints them with the client's answers. */
public final class AllocationAnswers {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject question = JSON.parseObject(line, Feature.OrderedField);
            answer(question);
            out.println(question.toJSONString());
        }
        out.flush();
    }

    private static void answer(JSONObject question) {
        List<MessageQueue> queues = queues(question.getJSONArray("queues"));
        List<String> clientIds = question.getJSONArray("client_ids").toJavaList(String.class);
        AllocateMessageQueueStrategy strategy = strategy(question.getString("strategy"), question);
        question.put("name", strategy.getName());
        try {
            JSONArray share = new JSONArray();
            for (MessageQueue queue : strategy.allocate("group", question.getString("client_id"), queues, clientIds)) {
                JSONArray parts = new JSONArray();
                parts.add(queue.getTopic());
                parts.add(queue.getBrokerName());
                parts.add(queue.getQueueId());
                share.add(parts);
            }
            question.put("share", share);
        } catch (RuntimeException error) {
            question.put("error", error.getClass().getSimpleName());
        }
    }

    private static AllocateMessageQueueStrategy strategy(String kind, JSONObject question) {
        switch (kind) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(question.getIntValue("virtual_nodes"));
            case "CONFIG": {
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues(question.getJSONArray("configured")));
                return config;
            }
            case "MACHINE_ROOM": {
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new HashSet<>(question.getJSONArray("rooms").toJavaList(String.class)));
                return rooms;
            }
            case "MACHINE_ROOM_NEARBY":
                return new AllocateMachineRoomNearby(strategy(question.getString("inner"), question), new Prefixes());
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static List<MessageQueue> queues(JSONArray described) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int i = 0; i < described.size(); i++) {
            JSONArray parts = described.getJSONArray(i);
            queues.add(new MessageQueue(parts.getString(0), parts.getString(1), parts.getIntValue(2)));
        }
        return queues;
    }

    /** A room is what stands before the first hyphen, of brokers as of clients. */
    private static final class Prefixes implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return prefix(queue.getBrokerName());
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return prefix(clientId);
        }

        private static String prefix(String name) {
            return name.substring(0, Math.max(0, name.indexOf('-')));
        }
    }
}
