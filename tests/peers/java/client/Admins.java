import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The operator's client: topics are made, changed and deleted. */
final class Admins {
    private static final long TIMEOUT_MS = 10_000;

    private final Named<DefaultMQAdminExt> admins = new Named<>();

    void offer(Map<String, Verb> verbs) {
        verbs.put("admin.start", this::start);
        verbs.put("admin.updateTopic", this::updateTopic);
        verbs.put("admin.deleteTopic", this::deleteTopic);
        verbs.put("admin.route", this::route);
    }

    private Object start(JSONObject request) throws Exception {
        DefaultMQAdminExt admin = Settings.made(request, () -> new DefaultMQAdminExt(TIMEOUT_MS));
        admin.start();
        admins.put(request.getString("name"), admin);
        return null;
    }

    private DefaultMQAdminExt named(JSONObject request) {
        return admins.get(request.getString("name"));
    }

    private Object updateTopic(JSONObject request) throws Exception {
        TopicConfig topic = new TopicConfig(
            request.getString("topic"), request.getIntValue("readQueues"), request.getIntValue("writeQueues"),
            request.getIntValue("permission"));
        named(request).createAndUpdateTopicConfig(request.getString("address"), topic);
        return null;
    }

    private Object deleteTopic(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        named(request).deleteTopicInBroker(Collections.singleton(request.getString("address")), topic);
        String cluster = request.getString("cluster");
        Set<String> nameservers = Collections.singleton(request.getString("nameserver"));
        // The two names changed places between the versions.
        boolean topicFirst = MQVersion.CURRENT_VERSION < MQVersion.Version.V5_0_0.ordinal();
        named(request).deleteTopicInNameServer(
            nameservers, topicFirst ? topic : cluster, topicFirst ? cluster : topic);
        return null;
    }

    private Object route(JSONObject request) throws Exception {
        List<Object> rows = new ArrayList<>();
        named(request).examineTopicRouteInfo(request.getString("topic")).getQueueDatas().forEach(data -> {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("broker", data.getBrokerName());
            row.put("readQueues", data.getReadQueueNums());
            row.put("writeQueues", data.getWriteQueueNums());
            row.put("permission", data.getPerm());
            rows.add(row);
        });
        return rows;
    }
}
