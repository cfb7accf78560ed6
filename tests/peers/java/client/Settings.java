import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import java.util.function.Supplier;
import org.apache.rocketmq.client.ClientConfig;

/** What every client of a request is set up with. */
final class Settings {
    /** Short, so that a test does not wait for routes and for heartbeats to a broker that was started again. */
    private static final int INTERVAL_MS = 1000;

    private Settings() {
    }

    /**
     * A new client with the request's "name" as its instance name, so that each has connections and an id of its own.
     *
     * <p>"properties" are system properties while it is made: some options have no setter in all versions.
     */
    static <T extends ClientConfig> T made(JSONObject request, Supplier<T> make) {
        JSONObject properties = request.getJSONObject("properties");
        T client;
        try {
            if (properties != null) {
                for (Map.Entry<String, Object> property : properties.entrySet()) {
                    System.setProperty(property.getKey(), property.getValue().toString());
                }
            }
            client = make.get();
        } finally {
            if (properties != null) {
                properties.keySet().forEach(System::clearProperty);
            }
        }
        client.setNamesrvAddr(request.getString("nameserver"));
        client.setInstanceName(request.getString("name"));
        Integer poll = request.getInteger("pollMs");
        client.setPollNameServerInterval(poll == null ? INTERVAL_MS : poll);
        client.setHeartbeatBrokerInterval(INTERVAL_MS);
        client.setPersistConsumerOffsetInterval(INTERVAL_MS);
        return client;
    }
}
