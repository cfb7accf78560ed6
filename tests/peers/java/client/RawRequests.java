import com.alibaba.fastjson.JSONObject;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.remoting.RemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Requests as they are, for what the client would refuse to send by itself. */
final class RawRequests {
    private static final long TIMEOUT_MS = 10_000;

    private final Producers producers;

    RawRequests(Producers producers) {
        this.producers = producers;
    }

    void offer(Map<String, Verb> verbs) {
        verbs.put("raw", this::request);
    }

    private Object request(JSONObject request) throws Exception {
        RemotingClient connections = producers.named(request).getDefaultMQProducerImpl().getmQClientFactory()
            .getMQClientAPIImpl().getRemotingClient();
        RemotingCommand command = RemotingCommand.createRequestCommand(request.getIntValue("code"), null);
        HashMap<String, String> fields = new HashMap<>();
        request.getJSONObject("fields").forEach((name, value) -> fields.put(name, (String) value));
        command.setExtFields(fields);
        command.setBody(Base64.getDecoder().decode(request.getString("body")));
        RemotingCommand response = connections.invokeSync(request.getString("address"), command, TIMEOUT_MS);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("code", response.getCode());
        row.put("remark", response.getRemark());
        row.put("fields", response.getExtFields());
        return row;
    }
}
